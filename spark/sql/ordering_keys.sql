-- What decides each event's partition, by the sequencer's own hash, so that other numbers of partitions can be tried.
-- Without key and host, a transaction's events stay together.
SELECT entry.topic_id, topic.name COLLATE "C" AS topic, entry.c_offset, entry.partition_id,
       coalesce(message.key, message.host_id) COLLATE "C" AS key,
       abs(hashtext(coalesce(message.key, message.host_id, message.transaction_id::text))::bigint) AS hash,
       message.created_at
FROM log_entry AS entry
JOIN outbox_message_t AS message ON message.id = entry.message_id
JOIN outbox_topics AS topic ON topic.id = entry.topic_id
