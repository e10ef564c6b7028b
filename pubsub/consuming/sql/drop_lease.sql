-- Gives a lease back, if it is still the same lease.
DELETE FROM consumer_claims
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
  AND epoch = %(epoch)s AND worker_id = %(worker_id)s
