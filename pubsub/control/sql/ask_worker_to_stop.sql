-- Asks a worker to stop, and wakes it. Returns whether it was asked before.
WITH before AS (
    SELECT id, stop_requested_at FROM outbox_workers WHERE worker_id = %(worker_id)s FOR UPDATE
), asked AS (
    UPDATE outbox_workers AS worker SET stop_requested_at = coalesce(worker.stop_requested_at, clock_timestamp())
    FROM before WHERE worker.id = before.id
)
SELECT stop_requested_at IS NOT NULL, pg_notify('pubsub_workers', '') FROM before
