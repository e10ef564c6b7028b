-- Makes a process a member of groups, or confirms that it still is one.
INSERT INTO outbox_members AS member (topic_id, group_id, worker_id, host, pid)
SELECT subscription.topic_id, subscription.group_id, %(worker_id)s, %(host)s, %(pid)s
FROM unnest(%(topics)s::text[], %(groups)s::text[]) AS wanted (topic, group_id)
JOIN outbox_topics AS topic ON topic.name = wanted.topic
JOIN outbox_topic_subscriptions AS subscription
  ON subscription.topic_id = topic.id AND subscription.group_id = wanted.group_id
ORDER BY 1, 2
ON CONFLICT (topic_id, group_id, worker_id) DO UPDATE
SET last_heartbeat_at = clock_timestamp(), host = excluded.host, pid = excluded.pid
