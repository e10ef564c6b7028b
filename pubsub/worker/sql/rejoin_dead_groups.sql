-- Makes dead groups ACTIVE again that a process has joined. Returns what they have missed. Misses are counted afresh.
UPDATE outbox_topic_subscriptions AS subscription
SET status = 'ACTIVE', status_reason = 'a member is back', status_changed_at = clock_timestamp(), misses = 0,
    last_miss_at = NULL, last_heartbeat_at = clock_timestamp()
FROM outbox_members AS member, outbox_topics AS topic
WHERE member.worker_id = %(worker_id)s AND subscription.status = 'DEAD'
  AND (subscription.topic_id, subscription.group_id) = (member.topic_id, member.group_id)
  AND topic.id = subscription.topic_id
RETURNING topic.name, subscription.group_id, subscription.missed::text
