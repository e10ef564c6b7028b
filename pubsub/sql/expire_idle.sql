-- Removes temporary subscriptions that nobody has used for as long as they may be idle, with their places, and notes
-- each in the journal. One is used while a member's heartbeat comes, a place moves, or a lease runs. A member that lives
-- says so no more often than its group asks for: it is heard of until its heartbeat_timeout is over. Where a worker has
-- one of its places in hand at this moment it stays; what is looked at is looked at again once it is locked. Its dead
-- letters stay, for people.
WITH idle AS MATERIALIZED (
    SELECT subscription.id, subscription.topic_id, subscription.group_id, subscription.expires_after
    FROM outbox_topic_subscriptions AS subscription
    WHERE subscription.expires_after IS NOT NULL
      AND greatest(subscription.created_at, subscription.status_changed_at, subscription.last_heartbeat_at)
          + subscription.expires_after <= clock_timestamp()
      AND NOT EXISTS (
          SELECT FROM consumer_claims AS claim
          WHERE claim.topic_id = subscription.topic_id AND claim.group_id = subscription.group_id
            AND claim.expires_at > clock_timestamp()
      )
      AND NOT EXISTS (
          SELECT FROM outbox_members AS member
          WHERE member.topic_id = subscription.topic_id AND member.group_id = subscription.group_id
            AND member.last_heartbeat_at + greatest(subscription.expires_after, subscription.heartbeat_timeout)
                > clock_timestamp()
      )
    FOR UPDATE OF subscription SKIP LOCKED
), places AS MATERIALIZED (
    SELECT place.topic_id, place.group_id, place.partition_id
    FROM consumer_offsets AS place JOIN idle USING (topic_id, group_id)
    WHERE place.updated_at + idle.expires_after <= clock_timestamp()
    FOR UPDATE OF place SKIP LOCKED
), unused AS (
    SELECT idle.* FROM idle
    WHERE (SELECT count(*) FROM places WHERE (places.topic_id, places.group_id) = (idle.topic_id, idle.group_id))
        = (SELECT count(*) FROM consumer_offsets AS place
           WHERE (place.topic_id, place.group_id) = (idle.topic_id, idle.group_id))
), without_claims AS (
    DELETE FROM consumer_claims AS claim USING unused
    WHERE (claim.topic_id, claim.group_id) = (unused.topic_id, unused.group_id)
), without_members AS (
    DELETE FROM outbox_members AS member USING unused
    WHERE (member.topic_id, member.group_id) = (unused.topic_id, unused.group_id)
), without_places AS (
    DELETE FROM consumer_offsets AS place USING unused
    WHERE (place.topic_id, place.group_id) = (unused.topic_id, unused.group_id)
), removed AS (
    DELETE FROM outbox_topic_subscriptions AS subscription USING unused
    WHERE subscription.id = unused.id
    RETURNING subscription.topic_id, subscription.group_id, subscription.expires_after
), told AS (
    INSERT INTO operator_events (actor, action, topic, group_id, reason)
    SELECT 'housekeeping', 'expire', topic.name, removed.group_id, 'not used for ' || removed.expires_after
    FROM removed JOIN outbox_topics AS topic ON topic.id = removed.topic_id
)
SELECT topic.name, removed.group_id
FROM removed JOIN outbox_topics AS topic ON topic.id = removed.topic_id
ORDER BY topic.name, removed.group_id
