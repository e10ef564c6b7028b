-- A subscription's new state. One that is active again has missed no heartbeat yet.
UPDATE outbox_topic_subscriptions
SET status = %(status)s, status_reason = %(reason)s, status_changed_at = clock_timestamp(),
    misses = CASE WHEN %(status)s = 'ACTIVE' THEN 0 ELSE misses END,
    last_heartbeat_at = CASE WHEN %(status)s = 'ACTIVE' AND last_heartbeat_at IS NOT NULL
                             THEN clock_timestamp() ELSE last_heartbeat_at END
WHERE id = %(id)s
