-- The sessions that have a lock on the two tables at this moment, which keeps a partition from being detached; the oldest
-- transaction first.
SELECT DISTINCT activity.pid, coalesce(activity.usename::text, '') AS "user",
       coalesce(activity.application_name, '') AS application, coalesce(activity.state, '') AS state,
       activity.xact_start AS since, left(coalesce(activity.query, ''), 200) AS query
FROM pg_locks AS held JOIN pg_stat_activity AS activity ON activity.pid = held.pid
WHERE held.locktype = 'relation' AND held.granted AND held.pid <> pg_backend_pid()
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND held.relation IN ('outbox_message_t'::regclass, 'log_entry'::regclass)
ORDER BY since
