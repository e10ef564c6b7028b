-- A process that stops removes its row and its members: until now its groups count as alive, and from here on they miss no
-- heartbeat because of it.
WITH gone AS (
    DELETE FROM outbox_workers WHERE worker_id = %(worker_id)s
), left_now AS (
    DELETE FROM outbox_members WHERE worker_id = %(worker_id)s RETURNING topic_id, group_id
)
UPDATE outbox_topic_subscriptions AS subscription SET last_heartbeat_at = clock_timestamp()
FROM left_now
WHERE (subscription.topic_id, subscription.group_id) = (left_now.topic_id, left_now.group_id)
