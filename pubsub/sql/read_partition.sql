-- The next events of a partition from a position on (see pubsub_read_v1).
SELECT position, c_offset, transaction_id, is_mine, event_id, type, key, payload, metadata, host_id, user_id,
       date_part('epoch', created_at)
FROM pubsub_read_v1(%(topic_id)s, %(partition_id)s, %(group_id)s, %(position)s, %(below_position)s, %(limit)s)
