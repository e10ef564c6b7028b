-- The entries of some topics from one position to before another that match at least one interest, in the log's order,
-- each with the numbers of the interests it matches. {conditions} is a list of expressions, each a number or null. Scans
-- the index of each partition, in this range only. What matches nothing is not sent; events addressed to one group never
-- match.
SELECT choice.matched, entry.topic_id, entry.partition_id, entry.position, entry.c_offset, true, false, {columns}
FROM log_partition_counter AS numbered
CROSS JOIN LATERAL (
    SELECT * FROM log_entry
    WHERE topic_id = numbered.topic_id AND partition_id = numbered.partition_id
      AND position >= %(position)s AND position < %(until)s
    ORDER BY position
) AS entry
JOIN outbox_message_t AS message ON message.id = entry.message_id AND message.to_group IS NULL
CROSS JOIN LATERAL (SELECT array_remove(ARRAY[{conditions}]::integer[], NULL) AS matched OFFSET 0) AS choice
WHERE numbered.topic_id = ANY (%(topics)s) AND choice.matched <> '{}'
ORDER BY entry.position
LIMIT %(limit)s
