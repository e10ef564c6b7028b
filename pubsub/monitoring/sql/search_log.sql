-- Messages between two offsets of a topic that match the conditions, in either direction. The range limits how many are
-- looked at: offsets have no gaps, so nothing has to be counted. Each entry's message is fetched by its id, whatever the
-- statistics say.
SELECT found.*, CASE WHEN %(with_payload)s THEN left(found_payload.text, %(payload_characters)s) END AS payload,
       length(found_payload.text) AS payload_length
FROM (
    SELECT entry.c_offset, entry.position, entry.partition_id, message.id AS message_id, message.event_id, message.type,
           message.key, message.host_id, message.to_group, message.transaction_id, message.created_at
    FROM log_entry AS entry
    CROSS JOIN LATERAL (SELECT * FROM outbox_message_t WHERE id = entry.message_id OFFSET 0) AS message
    WHERE entry.topic_id = %(topic_id)s AND entry.c_offset BETWEEN %(low)s AND %(high)s
      AND (%(partition)s::integer IS NULL OR entry.partition_id = %(partition)s::integer)
      AND (%(type)s::text IS NULL OR message.type = %(type)s::text)
      AND (%(key)s::text IS NULL OR message.key = %(key)s::text OR message.host_id = %(key)s::text)
      AND (%(identifier)s::uuid IS NULL OR message.event_id = %(identifier)s::uuid
           OR message.transaction_id = %(identifier)s::uuid)
      AND (%(until)s::timestamptz IS NULL OR message.created_at <= %(until)s::timestamptz)
    ORDER BY CASE WHEN %(ascending)s THEN entry.c_offset ELSE -entry.c_offset END
    LIMIT %(limit)s
) AS found
CROSS JOIN LATERAL (SELECT payload::text AS text FROM outbox_message_t WHERE id = found.message_id) AS found_payload
ORDER BY found.c_offset DESC
