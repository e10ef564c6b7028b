-- A topic's number, whether the row is there for good (now() is when the open transaction began), whether it refuses
-- events while no group would get them, and whether it does so at this moment. Takes no lock that anybody waits for. By
-- way of jsonb, so that events can be published while the column is still to be added.
SELECT topic.id, topic.created_at < now(), policy.refuses, policy.refuses AND NOT EXISTS (
           SELECT FROM outbox_topic_subscriptions AS subscription
           WHERE subscription.topic_id = topic.id AND subscription.status IN ('ACTIVE', 'PAUSED')
       )
FROM outbox_topics AS topic
CROSS JOIN LATERAL (SELECT coalesce(to_jsonb(topic) ->> 'zero_subscribers' = 'refuse', false) AS refuses) AS policy
WHERE topic.name = %(name)s
