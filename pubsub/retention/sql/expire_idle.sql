-- Removes temporary subscriptions that have been idle for longer than they may, with their cursors, and adds a row for each
-- to the audit log. A subscription is in use while a member sends heartbeats, a cursor moves, or a lease runs. A member
-- sends them only as often as its group asks for, so it counts until its heartbeat_timeout is over. A subscription with a
-- cursor that a worker has locked stays. Everything is checked again once it is locked. Dead letters stay, for operators.
WITH idle AS MATERIALIZED (
    SELECT subscription.id, subscription.topic_id, subscription.group_id, subscription.expires_after
    FROM outbox_topic_subscriptions AS subscription
    WHERE subscription.expires_after IS NOT NULL
      AND greatest(subscription.created_at, subscription.status_changed_at, subscription.last_heartbeat_at)
          + subscription.expires_after <= clock_timestamp()
      AND NOT EXISTS (
          SELECT FROM consumer_claims AS lease
          WHERE lease.topic_id = subscription.topic_id AND lease.group_id = subscription.group_id
            AND lease.expires_at > clock_timestamp()
      )
      AND NOT EXISTS (
          SELECT FROM outbox_members AS member
          WHERE member.topic_id = subscription.topic_id AND member.group_id = subscription.group_id
            AND member.last_heartbeat_at + greatest(subscription.expires_after, subscription.heartbeat_timeout)
                > clock_timestamp()
      )
    FOR UPDATE OF subscription SKIP LOCKED
), idle_cursors AS MATERIALIZED (
    SELECT cursor.topic_id, cursor.group_id, cursor.partition_id
    FROM consumer_offsets AS cursor JOIN idle USING (topic_id, group_id)
    WHERE cursor.updated_at + idle.expires_after <= clock_timestamp()
    FOR UPDATE OF cursor SKIP LOCKED
), unused AS (
    SELECT idle.* FROM idle
    WHERE (SELECT count(*) FROM idle_cursors AS cursor
           WHERE (cursor.topic_id, cursor.group_id) = (idle.topic_id, idle.group_id))
        = (SELECT count(*) FROM consumer_offsets AS cursor
           WHERE (cursor.topic_id, cursor.group_id) = (idle.topic_id, idle.group_id))
), without_leases AS (
    DELETE FROM consumer_claims AS lease USING unused
    WHERE (lease.topic_id, lease.group_id) = (unused.topic_id, unused.group_id)
), without_members AS (
    DELETE FROM outbox_members AS member USING unused
    WHERE (member.topic_id, member.group_id) = (unused.topic_id, unused.group_id)
), without_cursors AS (
    DELETE FROM consumer_offsets AS cursor USING unused
    WHERE (cursor.topic_id, cursor.group_id) = (unused.topic_id, unused.group_id)
), removed AS (
    DELETE FROM outbox_topic_subscriptions AS subscription USING unused
    WHERE subscription.id = unused.id
    RETURNING subscription.topic_id, subscription.group_id, subscription.expires_after
), recorded AS (
    INSERT INTO operator_events (actor, action, topic, group_id, reason)
    SELECT 'maintenance', 'expire', topic.name, removed.group_id, 'not used for ' || removed.expires_after
    FROM removed JOIN outbox_topics AS topic ON topic.id = removed.topic_id
)
SELECT topic.name, removed.group_id
FROM removed JOIN outbox_topics AS topic ON topic.id = removed.topic_id
ORDER BY topic.name, removed.group_id
