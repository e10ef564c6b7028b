-- A group's subscription, as declared in code. One that exists stays as its operators have set it.
INSERT INTO outbox_topic_subscriptions (topic_id, group_id, start_position, retry_delays)
VALUES (%(topic_id)s, %(group_id)s, %(start)s, %(retry_delays)s)
ON CONFLICT (topic_id, group_id) DO NOTHING
