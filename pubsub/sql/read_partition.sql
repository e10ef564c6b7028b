-- The next events of a partition from a position on, or from where the transaction that has locked the place has found
-- it: none if it has not (see pubsub_read_v1, and holding.py).
SELECT position, c_offset, transaction_id, is_mine, event_id, type, key, payload, metadata, host_id, user_id,
       date_part('epoch', created_at)
FROM pubsub_read_v1(
    %(topic_id)s, %(partition_id)s, %(group_id)s,
    coalesce(%(position)s, nullif(current_setting('pubsub.stands_at', true), '')::bigint), %(below_position)s, %(limit)s
)
