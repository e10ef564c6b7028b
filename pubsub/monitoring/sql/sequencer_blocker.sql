-- The session that keeps the sequencer from its work: the one at the end of the chain, which waits for no other itself. A
-- chain begins with what the leader waits for, and with those that have locked the sequencer's row, which it skips, in a
-- transaction that is older than a pass takes. Asked only where numbering is late.
WITH RECURSIVE chain AS (
    SELECT unnest(pg_blocking_pids(%(leader)s)) AS pid, 1 AS depth
    UNION
    SELECT lock.pid, 1 FROM pg_locks AS lock JOIN pg_stat_activity AS holder ON holder.pid = lock.pid
    WHERE lock.locktype = 'relation' AND lock.relation = 'log_sequencer'::regclass AND lock.granted
      AND lock.mode <> 'AccessShareLock'
      AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND holder.xact_start < clock_timestamp() - %(older)s::interval
    UNION
    SELECT unnest(pg_blocking_pids(chain.pid)), chain.depth + 1 FROM chain WHERE chain.depth < 20
)
SELECT 'transaction' AS kind, blocker.pid, coalesce(blocker.application_name, '') AS name,
       coalesce(blocker.usename, '') AS username, coalesce(host(blocker.client_addr), '') AS client,
       coalesce(blocker.state, '') AS state, blocker.xact_start AS since, coalesce(blocker.query, '') AS query,
       NULL::bigint AS bytes, true AS blocks_sequencer, false AS blocks_retention
FROM chain JOIN pg_stat_activity AS blocker ON blocker.pid = chain.pid
WHERE blocker.pid <> pg_backend_pid() AND blocker.pid IS DISTINCT FROM %(leader)s::integer
  AND cardinality(pg_blocking_pids(blocker.pid)) = 0
ORDER BY blocker.xact_start LIMIT 1
