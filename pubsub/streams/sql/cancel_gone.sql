-- Cancels a group's subscription to a topic because its receiver is gone for good, and adds that to the audit log. Once:
-- a subscription that is cancelled already stays as it is.
WITH cancelled AS (
    UPDATE outbox_topic_subscriptions AS subscription
    SET status = 'CANCELLED', status_reason = %(reason)s, status_changed_at = clock_timestamp()
    FROM outbox_topics AS topic
    WHERE topic.id = subscription.topic_id AND topic.name = %(topic)s AND subscription.group_id = %(group_id)s
      AND subscription.status <> 'CANCELLED'
    RETURNING topic.name, subscription.group_id
)
INSERT INTO operator_events (actor, action, topic, group_id, reason, after)
SELECT 'webhook', 'cancel', name, group_id, %(reason)s, '{"status": "CANCELLED"}' FROM cancelled
