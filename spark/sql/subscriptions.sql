-- Which group reads which topic, and how.
SELECT subscription.group_id, topic.name AS topic, subscription.status, subscription.status_reason,
       subscription.status_changed_at, subscription.start_position, subscription.start_value,
       subscription."where"::text AS "where", subscription.delivery, subscription.on_failure,
       subscription.retry_delays::text AS retry_delays, subscription.missed::text AS missed,
       subscription.last_heartbeat_at, subscription.created_at
FROM outbox_topic_subscriptions AS subscription JOIN outbox_topics AS topic ON topic.id = subscription.topic_id
