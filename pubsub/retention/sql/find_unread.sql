-- Where groups have not read everything before a position: the first such entry of each, found by one step into the
-- index. A group without a cursor in a partition, because its topic has just got more partitions, has read nothing.
SELECT subscription.topic_id, topic.name AS topic, subscription.group_id AS "group", subscription.status,
       numbered.partition_id AS partition, unread.position, unread.c_offset AS "offset", topic.max_age, topic.max_bytes
FROM outbox_topic_subscriptions AS subscription
JOIN outbox_topics AS topic ON topic.id = subscription.topic_id
JOIN log_partition_counter AS numbered ON numbered.topic_id = subscription.topic_id
LEFT JOIN consumer_offsets AS cursor
       ON cursor.group_id = subscription.group_id AND cursor.topic_id = subscription.topic_id
      AND cursor.partition_id = numbered.partition_id
CROSS JOIN LATERAL (
    SELECT position, c_offset FROM log_entry
    WHERE log_entry.topic_id = numbered.topic_id AND log_entry.partition_id = numbered.partition_id
      AND position >= coalesce(cursor.next_position, 0) AND position < %(before)s
    ORDER BY position LIMIT 1
) AS unread
WHERE subscription.status <> 'CANCELLED' AND coalesce(cursor.next_position, 0) < %(before)s
  AND numbered.entries > coalesce(cursor.passed, numbered.retired)
ORDER BY unread.position
