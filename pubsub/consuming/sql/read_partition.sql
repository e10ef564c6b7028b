-- The next events of a partition from a position on (see pubsub_read_v1).
SELECT position, c_offset, is_mine, false, {columns}
FROM pubsub_read_v1(
    %(topic_id)s, %(group_id)s, ARRAY[%(partition_id)s], ARRAY[%(position)s]::bigint[], %(below_position)s, %(limit)s,
    %(for_all)s
) AS message
