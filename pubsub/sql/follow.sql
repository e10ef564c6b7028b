-- The entries of some topics from one position to before another that somebody wants, in the log's order, and who wants
-- each: the numbers in `matched`. {conditions} is a list of expressions, each of them a number or null. Walks the index
-- of each partition, through this range of it alone; what nobody wants is not sent. Directed events are nobody's here.
SELECT entry.position, choice.matched, entry.topic_id, entry.partition_id, entry.c_offset, message.event_id,
       message.type, message.key, message.payload::text, message.metadata::text, message.host_id, message.user_id,
       message.transaction_id, message.created_at
FROM log_partition_counter AS numbered
CROSS JOIN LATERAL (
    SELECT * FROM log_entry
    WHERE topic_id = numbered.topic_id AND partition_id = numbered.partition_id
      AND position >= %(position)s AND position < %(until)s
    ORDER BY position
) AS entry
JOIN outbox_message_t AS message ON message.id = entry.message_id AND message.to_group IS NULL
CROSS JOIN LATERAL (SELECT array_remove(ARRAY[{conditions}]::integer[], NULL) AS matched OFFSET 0) AS choice
WHERE numbered.topic_id = ANY (%(topics)s) AND choice.matched <> '{{}}'
ORDER BY entry.position
LIMIT %(limit)s
