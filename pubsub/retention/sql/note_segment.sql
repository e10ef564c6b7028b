-- Notes what a segment holds; the braces name its partition. Reads it once: nothing writes to a full segment. One that was
-- emptied by hand is noted as empty, so that it can be dropped like the others.
INSERT INTO log_segments (lower, upper, topic_id, partition_id, entries, first_offset, last_offset, first_message_id,
                          last_message_id, filled_at)
SELECT %(lower)s, %(upper)s, topic_id, partition_id, count(*), min(c_offset), max(c_offset), min(message_id),
       max(message_id), statement_timestamp()
FROM {segment} GROUP BY topic_id, partition_id
UNION ALL
SELECT %(lower)s, %(upper)s, 0, 0, 0, 0, 0, 0, 0, statement_timestamp() WHERE NOT EXISTS (SELECT FROM {segment})
ON CONFLICT DO NOTHING
