-- What others may have to wait for, the oldest first: open transactions of this database (the sequencer waits for one that
-- has locked its row, dropping a partition waits for one that has read it, and VACUUM removes nothing newer than any of
-- them), prepared transactions, and replication slots.
WITH ours AS (
    SELECT relid AS oid FROM pg_partition_tree('outbox_message_t') UNION SELECT relid FROM pg_partition_tree('log_entry')
)
SELECT 'transaction' AS kind, activity.pid, coalesce(activity.application_name, '') AS name,
       coalesce(activity.usename, '') AS username, coalesce(host(activity.client_addr), '') AS client,
       coalesce(activity.state, '') AS state, activity.xact_start AS since,
       coalesce(activity.query, '') AS query, NULL::bigint AS bytes,
       locks.on_sequencer AS blocks_sequencer, locks.on_log AS blocks_retention
FROM pg_stat_activity AS activity
CROSS JOIN LATERAL (
    SELECT coalesce(bool_or(relation = 'log_sequencer'::regclass AND mode <> 'AccessShareLock'), false) AS on_sequencer,
           coalesce(bool_or(relation IN (SELECT oid FROM ours)), false) AS on_log
    FROM pg_locks AS lock
    WHERE lock.pid = activity.pid AND lock.granted AND lock.locktype = 'relation'
      AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
) AS locks
WHERE activity.datname = current_database() AND activity.pid <> pg_backend_pid()
  AND activity.xact_start < clock_timestamp() - %(older)s::interval
  AND activity.backend_type IN ('client backend', 'background worker')
UNION ALL
SELECT 'prepared', NULL, gid, owner, '', 'prepared', prepared, '', NULL, locks.on_sequencer, locks.on_log
FROM pg_prepared_xacts
CROSS JOIN LATERAL (
    SELECT coalesce(bool_or(relation = 'log_sequencer'::regclass AND mode <> 'AccessShareLock'), false) AS on_sequencer,
           coalesce(bool_or(relation IN (SELECT oid FROM ours)), false) AS on_log
    FROM pg_locks AS lock
    WHERE lock.virtualtransaction = '-1/' || pg_prepared_xacts.transaction::text AND lock.locktype = 'relation'
) AS locks
WHERE database = current_database() AND prepared < clock_timestamp() - %(older)s::interval
UNION ALL
SELECT 'slot', active_pid, slot_name, coalesce(plugin, ''), '', CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL,
       '', CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint END,
       false, false
FROM pg_replication_slots
WHERE NOT active AND restart_lsn IS NOT NULL
ORDER BY since NULLS LAST
