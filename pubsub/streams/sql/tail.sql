-- The matching events in a range of a topic's offsets. Offsets have no gaps: the next range begins right after this one,
-- whatever matched.
SELECT entry.partition_id, message.to_group, entry.position, entry.c_offset, true, false, {columns}
FROM log_entry AS entry JOIN outbox_message_t AS message ON message.id = entry.message_id
WHERE entry.topic_id = %(topic_id)s AND entry.c_offset >= %(first)s AND entry.c_offset <= %(last)s
  AND (%(types)s::text[] IS NULL OR message.type = ANY (%(types)s::text[]))
  AND (%(keys)s::text[] IS NULL OR coalesce(message.key, message.host_id) = ANY (%(keys)s::text[]))
ORDER BY entry.c_offset
