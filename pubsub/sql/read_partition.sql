-- The next events of a partition from a position on. Storage order is index order: the read opens only the partitions
-- that it needs and stops at the limit.
SELECT entry.position, message.to_group, entry.c_offset, message.event_id, message.type, message.key, message.payload,
       message.metadata, message.host_id, message.user_id, message.transaction_id, message.created_at
FROM log_entry AS entry JOIN outbox_message_t AS message ON message.id = entry.message_id
WHERE entry.topic_id = %(topic_id)s AND entry.partition_id = %(partition_id)s AND entry.position >= %(position)s
ORDER BY entry.position
LIMIT %(limit)s
