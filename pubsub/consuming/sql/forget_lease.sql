-- Removes the lease of a partition.
DELETE FROM consumer_claims
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
