-- Where a group stands in its partitions, and where it would stand a number of entries further forward or back in each; at
-- most at the tip, or at the oldest entry still stored.
SELECT cursor.partition_id, cursor.next_offset, cursor.passed, coalesce(numbered.entries, 0),
       coalesce(target.c_offset, counter.next_offset, 1), coalesce(target.position, sequencer.next_position),
       cursor.passed + steps.n
FROM consumer_offsets AS cursor
JOIN log_sequencer AS sequencer ON sequencer.id = 1
LEFT JOIN log_counter AS counter ON counter.topic_id = cursor.topic_id
LEFT JOIN log_partition_counter AS numbered
       ON numbered.topic_id = cursor.topic_id AND numbered.partition_id = cursor.partition_id
CROSS JOIN LATERAL (
    SELECT greatest(coalesce(numbered.retired, 0) - cursor.passed,
                    least(coalesce(numbered.entries, 0) - cursor.passed, %(by)s::bigint)) AS n
) AS steps
LEFT JOIN LATERAL (
    -- Back: the n-th entry before the cursor. Forward: the entry after the next n.
    (SELECT c_offset, position FROM log_entry
     WHERE steps.n < 0 AND topic_id = cursor.topic_id AND partition_id = cursor.partition_id
       AND position < cursor.next_position
     ORDER BY position DESC OFFSET -least(steps.n, -1) - 1 LIMIT 1)
    UNION ALL
    (SELECT c_offset, position FROM log_entry
     WHERE steps.n >= 0 AND topic_id = cursor.topic_id AND partition_id = cursor.partition_id
       AND position >= cursor.next_position
     ORDER BY position OFFSET greatest(steps.n, 0) LIMIT 1)
) AS target ON true
WHERE cursor.group_id = %(group_id)s AND cursor.topic_id = %(topic_id)s
  AND (%(partitions)s::integer[] IS NULL OR cursor.partition_id = ANY (%(partitions)s::integer[]))
ORDER BY cursor.partition_id
