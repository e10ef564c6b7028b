-- Removes workers that crashed so long ago that they are no members any more. One that is connected stays.
DELETE FROM outbox_workers AS worker
WHERE NOT EXISTS (SELECT FROM outbox_members AS member WHERE member.worker_id = worker.worker_id)
  AND started_at < clock_timestamp() - make_interval(secs => %(older_s)s)
  AND (lock_key IS NULL OR pg_try_advisory_xact_lock_shared(%(family)s, lock_key))
