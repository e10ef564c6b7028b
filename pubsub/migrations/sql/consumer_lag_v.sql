-- How far each group is behind in each partition. Nothing is counted: lag is the difference of two counters, and
-- waiting_since one step into an index.
CREATE VIEW consumer_lag_v AS
SELECT cursor.group_id, cursor.topic_id, topic.name AS topic, cursor.partition_id, subscription.status,
       cursor.next_offset, coalesce(counter.next_offset - 1, 0) AS tip,
       greatest(coalesce(numbered.entries, 0) - cursor.passed, 0) AS lag,
       waiting.created_at AS waiting_since, cursor.updated_at
FROM consumer_offsets AS cursor
JOIN outbox_topics AS topic ON topic.id = cursor.topic_id
LEFT JOIN outbox_topic_subscriptions AS subscription
       ON subscription.topic_id = cursor.topic_id AND subscription.group_id = cursor.group_id
LEFT JOIN log_counter AS counter ON counter.topic_id = cursor.topic_id
LEFT JOIN log_partition_counter AS numbered
       ON numbered.topic_id = cursor.topic_id AND numbered.partition_id = cursor.partition_id
LEFT JOIN LATERAL (
    SELECT message.created_at
    FROM log_entry AS entry JOIN outbox_message_t AS message ON message.id = entry.message_id
    WHERE entry.topic_id = cursor.topic_id AND entry.partition_id = cursor.partition_id
      AND entry.position >= cursor.next_position
    ORDER BY entry.position LIMIT 1
) AS waiting ON true;

COMMENT ON VIEW consumer_lag_v IS 'How far each group is behind in each partition';
