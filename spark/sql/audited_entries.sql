-- The log as it is, entry by entry, whether or not its message is there.
SELECT entry.topic_id, entry.c_offset, entry.position, entry.partition_id, message.id IS NULL AS is_lost
FROM log_entry AS entry LEFT JOIN outbox_message_t AS message ON message.id = entry.message_id
