-- A subscription for a group that Spark moves, so that retention waits for it. An existing one stays as operators
-- set it.
INSERT INTO outbox_topic_subscriptions (topic_id, group_id, start_position, start_value)
VALUES (%(topic_id)s, %(group)s, 'offset', %(next_offset)s)
ON CONFLICT (topic_id, group_id) DO NOTHING
