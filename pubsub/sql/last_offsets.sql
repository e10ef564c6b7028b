-- The last offset of each partition of each topic that some storage partitions of the log hold.
SELECT topic_id, partition_id, max(last_offset) FROM log_segments
WHERE lower = ANY (%(lowers)s) AND entries > 0 GROUP BY topic_id, partition_id
