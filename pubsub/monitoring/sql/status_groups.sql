-- Every subscription: its status, its members, and its open dead letters. These are counted up to a limit, along an index
-- that contains only open ones.
SELECT subscription.id, topic.name AS topic, subscription.group_id, subscription.status, subscription.status_reason,
       subscription.status_changed_at, subscription.missed, subscription.on_failure, subscription.delivery,
       coalesce(members.alive, 0) AS members, coalesce(members.silent, 0) AS silent, members.heard_at,
       failed.dead, failed.retrying, failed.parked, failed.open, failed.since
FROM outbox_topic_subscriptions AS subscription
JOIN outbox_topics AS topic ON topic.id = subscription.topic_id
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE last_heartbeat_at > clock_timestamp() - subscription.heartbeat_timeout) AS alive,
           count(*) FILTER (WHERE last_heartbeat_at <= clock_timestamp() - subscription.heartbeat_timeout) AS silent,
           max(last_heartbeat_at) AS heard_at
    FROM outbox_members AS member
    WHERE member.topic_id = subscription.topic_id AND member.group_id = subscription.group_id
) AS members ON true
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE state = 'dead') AS dead, count(*) FILTER (WHERE state = 'retrying') AS retrying,
           count(*) FILTER (WHERE state = 'parked') AS parked, count(*) AS open, min(created_at) AS since
    FROM (
        SELECT state, created_at FROM dead_letter_queue AS letter
        WHERE letter.group_id = subscription.group_id AND letter.topic_id = subscription.topic_id
          AND letter.state IN ('retrying', 'dead', 'parked')
        LIMIT %(limit)s
    ) AS letter
) AS failed
ORDER BY topic.name, subscription.group_id
