-- Every subscription: its status, its members, its open dead letters, and its lag some minutes ago. Letters are counted up
-- to a limit, along an index that contains only open ones. Where a failure stops a partition, the first failed event is
-- what everything waits for.
SELECT subscription.id, topic.name AS topic, subscription.group_id, subscription.status, subscription.status_reason,
       subscription.status_changed_at, subscription.missed, subscription.on_failure, subscription.delivery,
       subscription."where"::text AS filter,
       coalesce(members.alive, 0) AS members, coalesce(members.silent, 0) AS silent, members.heard_at,
       failed.dead, failed.retrying, failed.parked, failed.open, failed.since AS failed_since, failed.failed_last,
       failed.exception, failed.with_exception,
       stop.c_offset AS stop_offset, stop.exception_class AS stop_exception, stop.next_attempt_at AS stop_until,
       stop.created_at AS stop_since, stop.partitions AS stop_partitions, before.lag AS lag_before
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
    SELECT coalesce(sum(letters) FILTER (WHERE state = 'dead'), 0)::integer AS dead,
           coalesce(sum(letters) FILTER (WHERE state = 'retrying'), 0)::integer AS retrying,
           coalesce(sum(letters) FILTER (WHERE state = 'parked'), 0)::integer AS parked,
           coalesce(sum(letters), 0)::integer AS open, min(since) AS since, max(last) AS failed_last,
           coalesce((array_agg(exception_class ORDER BY letters DESC) FILTER (WHERE state = 'dead'))[1], '') AS exception,
           coalesce(max(letters) FILTER (WHERE state = 'dead'), 0)::integer AS with_exception
    FROM (
        SELECT state, exception_class, count(*) AS letters, min(created_at) AS since, max(created_at) AS last
        FROM (
            SELECT state, exception_class, created_at FROM dead_letter_queue AS letter
            WHERE letter.group_id = subscription.group_id AND letter.topic_id = subscription.topic_id
              AND letter.state IN ('retrying', 'dead', 'parked')
            LIMIT %(limit)s
        ) AS letter
        GROUP BY state, exception_class
    ) AS kind
) AS failed
LEFT JOIN LATERAL (
    SELECT letter.c_offset, letter.exception_class, letter.next_attempt_at, letter.created_at,
           (SELECT array_agg(DISTINCT every.partition_id) FROM dead_letter_queue AS every
            WHERE every.group_id = subscription.group_id AND every.topic_id = subscription.topic_id
              AND every.state IN ('retrying', 'dead', 'parked')) AS partitions
    FROM dead_letter_queue AS letter
    WHERE subscription.on_failure = 'stop' AND letter.group_id = subscription.group_id
      AND letter.topic_id = subscription.topic_id AND letter.state IN ('retrying', 'dead', 'parked')
    ORDER BY letter.state, letter.c_offset LIMIT 1
) AS stop ON true
LEFT JOIN LATERAL (
    SELECT lag FROM outbox_samples AS sample
    WHERE sample.topic_id = subscription.topic_id AND sample.group_id = subscription.group_id
      AND sample.taken_at <= clock_timestamp() - %(window)s::interval
    ORDER BY sample.taken_at DESC LIMIT 1
) AS before ON true
ORDER BY topic.name, subscription.group_id
