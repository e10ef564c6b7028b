-- Removes members that have been silent for so long that nobody misses them: neither people who look for what has
-- crashed, nor whoever watches the group's heartbeats.
DELETE FROM outbox_members AS member
USING outbox_topic_subscriptions AS subscription
WHERE (subscription.topic_id, subscription.group_id) = (member.topic_id, member.group_id)
  AND member.last_heartbeat_at < clock_timestamp() - greatest(
      make_interval(secs => %(older_s)s), 2 * %(dead_after)s * subscription.heartbeat_timeout)
  -- The last sign of a group that is being given up stays until it has been.
  AND (subscription.status <> 'ACTIVE' OR subscription.misses = 0)
