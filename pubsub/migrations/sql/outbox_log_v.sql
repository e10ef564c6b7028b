-- The log as its readers see it: offset and content in one row. What SQL users, the admin and Spark read.
CREATE VIEW outbox_log_v AS
SELECT entry.topic_id, topic.name AS topic, entry.c_offset, entry.partition_id, entry.position, entry.message_id,
       message.event_id, message.type, message.key, message.host_id, message.user_id, message.to_group,
       message.transaction_id, message.payload, message.metadata, message.created_at
FROM log_entry AS entry
JOIN outbox_message_t AS message ON message.id = entry.message_id
JOIN outbox_topics AS topic ON topic.id = entry.topic_id;

COMMENT ON VIEW outbox_log_v IS 'Events with topic, offset and partition: what SQL users, the admin and Spark read';
