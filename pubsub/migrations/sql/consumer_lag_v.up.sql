-- How far each group is behind in each partition. Nothing is counted: lag is the difference of two counters, and
-- waiting_since one step into an index.
CREATE VIEW consumer_lag_v AS
SELECT place.group_id, place.topic_id, topic.name AS topic, place.partition_id, subscription.status,
       place.next_offset, coalesce(counter.next_offset - 1, 0) AS tip,
       greatest(coalesce(numbered.entries, 0) - place.passed, 0) AS lag,
       waiting.created_at AS waiting_since, place.updated_at
FROM consumer_offsets AS place
JOIN outbox_topics AS topic ON topic.id = place.topic_id
LEFT JOIN outbox_topic_subscriptions AS subscription
       ON subscription.topic_id = place.topic_id AND subscription.group_id = place.group_id
LEFT JOIN log_counter AS counter ON counter.topic_id = place.topic_id
LEFT JOIN log_partition_counter AS numbered
       ON numbered.topic_id = place.topic_id AND numbered.partition_id = place.partition_id
LEFT JOIN LATERAL (
    SELECT message.created_at
    FROM log_entry AS entry JOIN outbox_message_t AS message ON message.id = entry.message_id
    WHERE entry.topic_id = place.topic_id AND entry.partition_id = place.partition_id
      AND entry.position >= place.next_position
    ORDER BY entry.position LIMIT 1
) AS waiting ON true;

COMMENT ON VIEW consumer_lag_v IS 'How far each group is behind in each partition';
