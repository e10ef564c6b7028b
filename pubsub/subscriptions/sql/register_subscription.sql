-- A group's subscription, as declared in code; returns whether it is new. For one that exists, the code decides
-- which events are handled, and how; its status and its cursors stay as operators have set them.
INSERT INTO outbox_topic_subscriptions AS present (
    topic_id, group_id, start_position, start_value, "where", delivery, on_failure, retry_delays, expires_after, timeout
)
VALUES (%(topic_id)s, %(group_id)s, %(start)s, %(start_value)s, %(where)s, %(delivery)s, %(on_failure)s,
        %(retry_delays)s, %(expires_after)s, make_interval(secs => %(timeout)s))
ON CONFLICT (topic_id, group_id) DO UPDATE
SET "where" = excluded."where", delivery = excluded.delivery, on_failure = excluded.on_failure,
    retry_delays = excluded.retry_delays, expires_after = excluded.expires_after,
    timeout = excluded.timeout
RETURNING present.xmax = 0
