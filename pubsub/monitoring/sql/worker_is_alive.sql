-- Whether a worker is connected, or, where that does not show, has sent a heartbeat in time: a piece of other statements,
-- which call its row "worker".
CASE
    WHEN worker.lock_key IS NULL THEN EXISTS (
        SELECT FROM outbox_members AS heard JOIN outbox_topic_subscriptions AS its USING (topic_id, group_id)
        WHERE heard.worker_id = worker.worker_id
          AND heard.last_heartbeat_at > clock_timestamp() - its.heartbeat_timeout
    )
    ELSE EXISTS (
        SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND classid = %(family)s AND objid = worker.lock_key AND objsubid = 2 AND granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
END
