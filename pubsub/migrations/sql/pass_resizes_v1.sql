-- Lets groups go on behind a resize of their topic once nothing before it is left, unread or under a lease.
--
-- So the events of a key, which may be in another partition from there on, keep their order.
CREATE FUNCTION pubsub_pass_resizes_v1(topics text[], groups text[]) RETURNS void
LANGUAGE sql
AS $$
UPDATE outbox_topic_subscriptions AS subscription
SET resizes_passed = resize.position
FROM unnest(topics, groups) AS asked (topic, group_id)
JOIN outbox_topics AS topic ON topic.name = asked.topic
CROSS JOIN LATERAL (
    SELECT position FROM outbox_topic_resizes WHERE topic_id = topic.id ORDER BY position
) AS resize
WHERE subscription.topic_id = topic.id AND subscription.group_id = asked.group_id
  AND resize.position > subscription.resizes_passed
  AND NOT EXISTS (
      SELECT FROM outbox_topic_resizes AS earlier
      WHERE earlier.topic_id = topic.id AND earlier.position > subscription.resizes_passed
        AND earlier.position < resize.position
  )
  -- A partition in which the group has no cursor yet: everything in it is left.
  AND NOT EXISTS (
      SELECT FROM log_partition_counter AS numbered
      WHERE numbered.topic_id = topic.id AND numbered.entries > 0 AND NOT EXISTS (
          SELECT FROM consumer_offsets AS cursor
          WHERE cursor.topic_id = topic.id AND cursor.group_id = asked.group_id
            AND cursor.partition_id = numbered.partition_id
      ) AND EXISTS (
          SELECT FROM log_entry AS entry
          WHERE entry.topic_id = topic.id AND entry.partition_id = numbered.partition_id
            AND entry.position < resize.position
      )
  )
  AND NOT EXISTS (
      SELECT FROM consumer_claims AS lease
      WHERE lease.topic_id = topic.id AND lease.group_id = asked.group_id
  )
  AND NOT EXISTS (
      SELECT FROM consumer_offsets AS cursor
      WHERE cursor.topic_id = topic.id AND cursor.group_id = asked.group_id
        AND EXISTS (
            SELECT FROM log_entry AS entry
            WHERE entry.topic_id = topic.id AND entry.partition_id = cursor.partition_id
              AND entry.position >= cursor.next_position AND entry.position < resize.position
        )
  )
$$;
