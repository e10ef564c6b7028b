-- The log for Spark's readers, which add the ranges of topic_id and c_offset that they want. As in outbox_log_v, but all
-- types are such that a filter means the same in Spark and in PostgreSQL, which evaluates it: uuid and jsonb as text,
-- text compared by its bytes.
SELECT entry.topic_id, message.id AS message_id, topic.name COLLATE "C" AS topic, entry.c_offset,
       entry.partition_id, entry.position,
       message.event_id::text COLLATE "C" AS event_id, message.type COLLATE "C" AS type,
       message.key COLLATE "C" AS key, message.host_id COLLATE "C" AS host_id,
       message.user_id COLLATE "C" AS user_id, message.to_group COLLATE "C" AS to_group,
       message.transaction_id::text COLLATE "C" AS transaction_id,
       message.payload::text COLLATE "C" AS payload, message.metadata::text COLLATE "C" AS metadata,
       message.created_at
FROM log_entry AS entry
JOIN outbox_message_t AS message ON message.id = entry.message_id
JOIN outbox_topics AS topic ON topic.id = entry.topic_id
