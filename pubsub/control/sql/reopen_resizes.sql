-- A group that was moved back to before a resize has to pass it again, or keys would lose their order.
UPDATE outbox_topic_subscriptions AS subscription
SET resizes_passed = earliest.position
FROM (
    SELECT min(next_position) AS position FROM consumer_offsets
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s
) AS earliest
WHERE subscription.group_id = %(group_id)s AND subscription.topic_id = %(topic_id)s
  AND subscription.resizes_passed > earliest.position
