-- The status of a stream's group, and the first offset that it has not passed in all partitions.
SELECT subscription.status, min(cursors.next_offset)
FROM outbox_topic_subscriptions AS subscription
LEFT JOIN consumer_offsets AS cursors USING (topic_id, group_id)
WHERE subscription.topic_id = %(topic_id)s AND subscription.group_id = %(group)s
GROUP BY subscription.status
