-- Removes members that have been silent for so long that neither operators looking for a crash nor the watch over their
-- group's heartbeats need them any more.
DELETE FROM outbox_members AS member
USING outbox_topic_subscriptions AS subscription
WHERE (subscription.topic_id, subscription.group_id) = (member.topic_id, member.group_id)
  AND member.last_heartbeat_at < clock_timestamp() - greatest(
      make_interval(secs => %(older_s)s), 2 * %(dead_after)s * subscription.heartbeat_timeout)
  -- While a group is missing heartbeats, its last member stays as evidence.
  AND (subscription.status <> 'ACTIVE' OR subscription.misses = 0)
