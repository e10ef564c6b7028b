-- Removes the claim of a place whose cursor has passed all that it holds.
DELETE FROM consumer_claims AS claim USING consumer_offsets AS place
WHERE (claim.group_id, claim.topic_id, claim.partition_id) = (%(group_id)s, %(topic_id)s, %(partition_id)s)
  AND (place.group_id, place.topic_id, place.partition_id) = (claim.group_id, claim.topic_id, claim.partition_id)
  AND claim.last_offset < place.next_offset
