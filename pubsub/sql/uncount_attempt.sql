-- Takes an attempt back that was counted before it was made: the worker has not died of it. Others may have counted theirs
-- meanwhile; what they stand before is the same as long as the cursor has not moved.
UPDATE consumer_claims AS claim SET attempts = claim.attempts - 1
FROM consumer_offsets AS place
WHERE (claim.group_id, claim.topic_id, claim.partition_id) = (%(group_id)s, %(topic_id)s, %(partition_id)s)
  AND (place.group_id, place.topic_id, place.partition_id) = (claim.group_id, claim.topic_id, claim.partition_id)
  AND place.next_offset = %(next_offset)s AND claim.attempts > 0
