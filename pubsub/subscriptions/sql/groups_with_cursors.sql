-- Every group that has cursors and is to be handled, by topic, and whether one of its members is alive. Temporary ones are
-- expected to be left behind.
SELECT topic.name, subscription.group_id,
       EXISTS (
           SELECT FROM outbox_members AS member
           WHERE member.topic_id = subscription.topic_id AND member.group_id = subscription.group_id
             AND member.last_heartbeat_at > clock_timestamp() - subscription.heartbeat_timeout
       )
FROM outbox_topic_subscriptions AS subscription JOIN outbox_topics AS topic ON topic.id = subscription.topic_id
WHERE subscription.status <> 'CANCELLED' AND subscription.expires_after IS NULL
  AND EXISTS (
      SELECT FROM consumer_offsets AS cursor
      WHERE cursor.topic_id = subscription.topic_id AND cursor.group_id = subscription.group_id
  )
ORDER BY 1, 2
