-- The archive's own subscription, which retention waits for. One that exists stays as its operators have set it.
INSERT INTO outbox_topic_subscriptions (topic_id, group_id, start_position, start_value)
VALUES (%(topic_id)s, %(group)s, 'offset', %(next_offset)s)
ON CONFLICT (topic_id, group_id) DO NOTHING
