-- Checks the heartbeats of all active groups. Writes only where something has changed, so it may run as often as anyone
-- likes, and in many processes: another miss counts only when a whole timeout has passed since the last one. A group is dead
-- after so many misses in a row.
--
-- A group with members misses one when the last of them has been silent for its heartbeat_timeout. A group whose members
-- have all stopped in good order, or that never had any, like a stream of Spark, misses nothing until an event has waited
-- for it for a long time: with nothing to do, no one can tell which groups are alive. Any move of its cursors counts as a
-- sign of life, too.
WITH heard AS (
    SELECT subscription.id, topic_id, group_id, heartbeat_timeout, misses, last_miss_at, members.count AS members,
           greatest(last_heartbeat_at, status_changed_at, subscription.created_at, members.heard_at, moved_at) AS heard_at,
           members.heard_at AS member_heard_at
    FROM outbox_topic_subscriptions AS subscription
    CROSS JOIN LATERAL (
        SELECT count(*), max(last_heartbeat_at) AS heard_at FROM outbox_members
        WHERE (topic_id, group_id) = (subscription.topic_id, subscription.group_id)
    ) AS members
    CROSS JOIN LATERAL (
        SELECT max(updated_at) AS moved_at FROM consumer_offsets
        WHERE (topic_id, group_id) = (subscription.topic_id, subscription.group_id)
    ) AS cursors
    WHERE status = 'ACTIVE'
), checked AS (
    SELECT *, CASE WHEN members > 0 THEN heard_at <= clock_timestamp() - heartbeat_timeout
                WHEN %(silence_s)s::float IS NULL OR heard_at > clock_timestamp() - make_interval(secs => %(silence_s)s)
                    THEN false
                ELSE EXISTS (
                    SELECT FROM consumer_lag_v AS cursor
                    WHERE (cursor.topic_id, cursor.group_id) = (heard.topic_id, heard.group_id) AND lag > 0
                      AND waiting_since <= clock_timestamp() - make_interval(secs => %(silence_s)s)
                ) END AS overdue
    FROM heard
), counted AS (
    UPDATE outbox_topic_subscriptions AS subscription
    SET misses = CASE WHEN overdue THEN subscription.misses + 1 ELSE 0 END,
        last_miss_at = CASE WHEN overdue THEN clock_timestamp() END,
        last_heartbeat_at = greatest(subscription.last_heartbeat_at, member_heard_at),
        status = CASE WHEN overdue AND subscription.misses + 1 >= %(dead_after)s THEN 'DEAD' ELSE 'ACTIVE' END,
        status_reason = CASE WHEN overdue AND subscription.misses + 1 >= %(dead_after)s
            THEN format('no sign of life since %%s', to_char(heard_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'))
            ELSE status_reason END,
        status_changed_at = CASE WHEN overdue AND subscription.misses + 1 >= %(dead_after)s
            THEN clock_timestamp() ELSE status_changed_at END,
        missed = CASE WHEN overdue AND subscription.misses + 1 >= %(dead_after)s THEN NULL ELSE missed END
    FROM checked
    WHERE checked.id = subscription.id AND subscription.status = 'ACTIVE'
      -- After waiting here for another process that watches, the row has changed: then it was counted there.
      AND (subscription.misses, subscription.last_miss_at) IS NOT DISTINCT FROM (checked.misses, checked.last_miss_at)
      AND (overdue AND (subscription.last_miss_at IS NULL
                        OR subscription.last_miss_at <= clock_timestamp() - subscription.heartbeat_timeout)
           OR NOT overdue AND subscription.misses > 0)
    RETURNING subscription.topic_id, subscription.group_id, subscription.misses, subscription.status, members, heard_at
)
SELECT topic.name, counted.group_id, misses, status, members, heard_at
FROM counted JOIN outbox_topics AS topic ON topic.id = topic_id
ORDER BY 1, 2
