-- Where groups have not read all that is before a position: the first such entry of each, found by one step into the
-- index. A group that has no place yet in a partition, because the topic has just got more of them, has read nothing.
SELECT subscription.topic_id, topic.name, subscription.group_id, subscription.status, numbered.partition_id,
       unread.position, unread.c_offset, topic.max_age, topic.max_bytes
FROM outbox_topic_subscriptions AS subscription
JOIN outbox_topics AS topic ON topic.id = subscription.topic_id
JOIN log_partition_counter AS numbered ON numbered.topic_id = subscription.topic_id
LEFT JOIN consumer_offsets AS place
       ON place.group_id = subscription.group_id AND place.topic_id = subscription.topic_id
      AND place.partition_id = numbered.partition_id
CROSS JOIN LATERAL (
    SELECT position, c_offset FROM log_entry
    WHERE log_entry.topic_id = numbered.topic_id AND log_entry.partition_id = numbered.partition_id
      AND position >= coalesce(place.next_position, 0) AND position < %(before)s
    ORDER BY position LIMIT 1
) AS unread
WHERE subscription.status <> 'CANCELLED' AND coalesce(place.next_position, 0) < %(before)s
  AND numbered.entries > coalesce(place.passed, numbered.retired)
ORDER BY unread.position
