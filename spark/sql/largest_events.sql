-- The approximate size of a range's largest events, in bytes, from a sample of events spread over it.
SELECT max(octet_length(message.payload::text) + octet_length(message.metadata::text))
FROM generate_series(%(first)s::bigint, %(last)s, greatest(1, (%(last)s - %(first)s) / 30)) AS sample (c_offset)
JOIN log_entry AS entry ON entry.topic_id = %(topic_id)s AND entry.c_offset = sample.c_offset
JOIN outbox_message_t AS message ON message.id = entry.message_id
