-- The last offset that some segments hold of each partition of each topic.
SELECT topic_id, partition_id, max(last_offset) FROM log_segments
WHERE lower = ANY (%(lowers)s) AND entries > 0 GROUP BY topic_id, partition_id
