-- The offsets of what comes next in a partition; null if nothing does.
SELECT min(c_offset), max(c_offset)
FROM pubsub_read_v1(
    %(topic_id)s, %(group_id)s, ARRAY[%(partition_id)s], ARRAY[%(position)s]::bigint[], %(below_position)s, %(limit)s
)
