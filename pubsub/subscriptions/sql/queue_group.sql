-- The group that a queue belongs to, if it is not the given one; no row for topics that all groups read.
SELECT subscription.group_id
FROM outbox_topics AS topic JOIN outbox_topic_subscriptions AS subscription ON subscription.topic_id = topic.id
WHERE topic.id = %(topic_id)s AND topic.semantics = 'QUEUE'
  AND subscription.group_id <> %(group_id)s AND subscription.status <> 'CANCELLED'
LIMIT 1
