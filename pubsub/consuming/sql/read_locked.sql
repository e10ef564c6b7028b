-- The next events of the partitions whose cursors the transaction has locked, each from there on (see pubsub_read_v1 and
-- pubsub_lock_cursors_v1): none if it has locked none.
SELECT position, c_offset, is_mine, false, {columns}{partition}
FROM pubsub_read_v1(
    %(topic_id)s, %(group_id)s, current_setting('pubsub.locked')::integer[],
    current_setting('pubsub.stands_at')::bigint[], %(below_position)s, %(limit)s, %(for_all)s
) AS message
