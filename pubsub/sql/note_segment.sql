-- Notes what a full storage partition of the log holds. Reads it once, and nobody writes to it any more; the name in
-- braces is the partition's. One that somebody has emptied by hand is noted as empty, so that it can go as well.
INSERT INTO log_segments (lower, upper, topic_id, partition_id, entries, first_offset, last_offset, first_message_id,
                          last_message_id, filled_at)
SELECT %(lower)s, %(upper)s, topic_id, partition_id, count(*), min(c_offset), max(c_offset), min(message_id),
       max(message_id), statement_timestamp()
FROM {child} GROUP BY topic_id, partition_id
UNION ALL
SELECT %(lower)s, %(upper)s, 0, 0, 0, 0, 0, 0, 0, statement_timestamp() WHERE NOT EXISTS (SELECT FROM {child})
ON CONFLICT DO NOTHING
