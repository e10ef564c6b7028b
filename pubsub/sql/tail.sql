-- A stretch of a topic's log, and of it what was asked for. Offsets have no gaps: whoever asked goes on behind the
-- stretch, whatever matched.
SELECT entry.c_offset, entry.partition_id, message.event_id, message.type, message.key, message.host_id, message.user_id,
       message.to_group, message.transaction_id, message.created_at, message.payload, message.metadata
FROM log_entry AS entry JOIN outbox_message_t AS message ON message.id = entry.message_id
WHERE entry.topic_id = %(topic_id)s AND entry.c_offset >= %(first)s AND entry.c_offset <= %(last)s
  AND (%(types)s::text[] IS NULL OR message.type = ANY (%(types)s::text[]))
  AND (%(keys)s::text[] IS NULL OR coalesce(message.key, message.host_id) = ANY (%(keys)s::text[]))
ORDER BY entry.c_offset
