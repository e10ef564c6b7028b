-- The next events of a partition from a position on, or from where the transaction that has locked the cursor found it:
-- none if it has not (see pubsub_read_v1, and session.py).
SELECT position, c_offset, is_mine, false, {columns}
FROM pubsub_read_v1(
    %(topic_id)s, %(partition_id)s, %(group_id)s,
    coalesce(%(position)s, nullif(current_setting('pubsub.stands_at', true), '')::bigint), %(below_position)s, %(limit)s
) AS message
