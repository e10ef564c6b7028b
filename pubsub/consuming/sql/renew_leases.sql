-- Renews the leases of a worker; returns those that are still its own.
UPDATE consumer_claims AS lease
SET expires_at = clock_timestamp() + make_interval(secs => %(lease_s)s), lock_key = %(lock_key)s
FROM unnest(%(groups)s::text[], %(topics)s::integer[], %(partitions)s::integer[], %(epochs)s::bigint[])
  AS held (group_id, topic_id, partition_id, epoch)
WHERE (lease.group_id, lease.topic_id, lease.partition_id, lease.epoch)
    = (held.group_id, held.topic_id, held.partition_id, held.epoch)
RETURNING lease.group_id, lease.topic_id, lease.partition_id
