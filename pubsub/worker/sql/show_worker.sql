-- Shows that a worker is there, under the lock that it holds for as long as it is connected. After the loss of its
-- connection it is the same one, and an operator's request holds. Returns whether it is to stop.
INSERT INTO outbox_workers AS worker (worker_id, host, pid, threads, lock_key)
VALUES (%(worker_id)s, %(host)s, %(pid)s, %(threads)s, %(lock_key)s)
ON CONFLICT (worker_id) DO UPDATE
SET host = excluded.host, pid = excluded.pid, threads = excluded.threads, lock_key = excluded.lock_key, in_hand = '[]',
    stop_requested_at = CASE WHEN %(is_new)s THEN NULL ELSE worker.stop_requested_at END,
    started_at = CASE WHEN %(is_new)s THEN clock_timestamp() ELSE worker.started_at END
RETURNING stop_requested_at IS NOT NULL
