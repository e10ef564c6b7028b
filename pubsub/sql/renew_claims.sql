-- Renews the leases of a worker; returns those that are still its own.
UPDATE consumer_claims AS claim
SET expires_at = clock_timestamp() + make_interval(secs => %(lease_s)s), lock_key = %(lock_key)s
FROM unnest(%(groups)s::text[], %(topics)s::integer[], %(partitions)s::integer[], %(epochs)s::bigint[])
  AS held (group_id, topic_id, partition_id, epoch)
WHERE (claim.group_id, claim.topic_id, claim.partition_id, claim.epoch)
    = (held.group_id, held.topic_id, held.partition_id, held.epoch)
RETURNING claim.group_id, claim.topic_id, claim.partition_id
