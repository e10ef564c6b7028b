-- The lease of a partition, and whether the worker that has it lives: its lease has not run out, and it is still
-- connected, as far as that can be seen (see lease.py). What a worker has lost track of itself, it may take again.
SELECT worker_id <> %(worker_id)s AND expires_at > clock_timestamp()
           AND (lock_key IS NULL OR NOT pg_try_advisory_xact_lock_shared(%(family)s, lock_key)),
       attempts, first_offset, last_offset
FROM consumer_claims
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
FOR UPDATE
