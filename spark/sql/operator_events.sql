-- What operators did, and what was decided automatically.
SELECT id, happened_at, actor, action, topic, group_id, reason, before::text AS before, after::text AS after
FROM operator_events
