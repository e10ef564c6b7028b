-- A topic's number, whether the row is there for good (now() is when the open transaction began), whether it refuses
-- events while no group would get them, and whether it does so at this moment. Takes no lock that another must wait for.
SELECT topic.id, topic.created_at < now(), topic.zero_subscribers = 'refuse',
       topic.zero_subscribers = 'refuse' AND NOT EXISTS (
           SELECT FROM outbox_topic_subscriptions AS subscription
           WHERE subscription.topic_id = topic.id AND subscription.status IN ('ACTIVE', 'PAUSED')
       )
FROM outbox_topics AS topic
WHERE topic.name = %(name)s
