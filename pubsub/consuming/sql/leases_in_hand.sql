-- Which of a group's partitions live workers have under a lease, and which worker each.
SELECT partition_id, worker_id FROM consumer_claims
WHERE topic_id = %(topic_id)s AND group_id = %(group_id)s
  AND (%(partitions)s::integer[] IS NULL OR partition_id = ANY (%(partitions)s))
  AND expires_at > clock_timestamp()
  AND (lock_key IS NULL OR NOT pg_try_advisory_xact_lock_shared(%(family)s, lock_key))
