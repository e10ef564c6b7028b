-- Where a group stands in its partitions, and where it would stand a number of entries further on, or back, in each; at
-- most at the tip, or at the oldest entry that is still there.
SELECT place.partition_id, place.next_offset, place.passed, coalesce(numbered.entries, 0),
       coalesce(target.c_offset, counter.next_offset, 1), coalesce(target.position, sequencer.next_position),
       place.passed + steps.n
FROM consumer_offsets AS place
JOIN log_sequencer AS sequencer ON sequencer.id = 1
LEFT JOIN log_counter AS counter ON counter.topic_id = place.topic_id
LEFT JOIN log_partition_counter AS numbered
       ON numbered.topic_id = place.topic_id AND numbered.partition_id = place.partition_id
CROSS JOIN LATERAL (
    SELECT greatest(coalesce(numbered.retired, 0) - place.passed,
                    least(coalesce(numbered.entries, 0) - place.passed, %(by)s::bigint)) AS n
) AS steps
LEFT JOIN LATERAL (
    -- Back: the last of n entries before the place. On: the one behind n entries from it.
    (SELECT c_offset, position FROM log_entry
     WHERE steps.n < 0 AND topic_id = place.topic_id AND partition_id = place.partition_id
       AND position < place.next_position
     ORDER BY position DESC OFFSET -least(steps.n, -1) - 1 LIMIT 1)
    UNION ALL
    (SELECT c_offset, position FROM log_entry
     WHERE steps.n >= 0 AND topic_id = place.topic_id AND partition_id = place.partition_id
       AND position >= place.next_position
     ORDER BY position OFFSET greatest(steps.n, 0) LIMIT 1)
) AS target ON true
WHERE place.group_id = %(group_id)s AND place.topic_id = %(topic_id)s
  AND (%(partitions)s::integer[] IS NULL OR place.partition_id = ANY (%(partitions)s::integer[]))
ORDER BY place.partition_id
