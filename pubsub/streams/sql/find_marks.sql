-- Which event stands at one offset of each topic, and its position. No row for an offset that is not there, or no more.
SELECT entry.topic_id, entry.position, message.event_id
FROM unnest(%(topics)s::integer[], %(offsets)s::bigint[]) AS wanted (topic_id, c_offset)
JOIN log_entry AS entry ON entry.topic_id = wanted.topic_id AND entry.c_offset = wanted.c_offset
JOIN outbox_message_t AS message ON message.id = entry.message_id
