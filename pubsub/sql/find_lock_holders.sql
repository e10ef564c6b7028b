-- The sessions in the way of detaching a partition at this moment, the oldest transaction first.
SELECT DISTINCT activity.pid, coalesce(activity.usename::text, ''), coalesce(activity.application_name, ''),
       coalesce(activity.state, ''), activity.xact_start, left(coalesce(activity.query, ''), 200)
FROM pg_locks AS held JOIN pg_stat_activity AS activity ON activity.pid = held.pid
WHERE held.locktype = 'relation' AND held.granted AND held.pid <> pg_backend_pid()
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND held.relation IN ('outbox_message_t'::regclass, 'log_entry'::regclass)
ORDER BY activity.xact_start
