-- After a guarded attempt that has moved the cursor: the claim goes, unless more is left of what the worker that died
-- may have had in hand. Then it is for whoever is next.
WITH gone AS (
    DELETE FROM consumer_claims AS claim USING consumer_offsets AS place
    WHERE (claim.group_id, claim.topic_id, claim.partition_id) = (%(group_id)s, %(topic_id)s, %(partition_id)s)
      AND (place.group_id, place.topic_id, place.partition_id) = (claim.group_id, claim.topic_id, claim.partition_id)
      AND claim.last_offset < place.next_offset
)
UPDATE consumer_claims AS claim SET attempts = 0, worker_id = '', expires_at = clock_timestamp()
FROM consumer_offsets AS place
WHERE (claim.group_id, claim.topic_id, claim.partition_id) = (%(group_id)s, %(topic_id)s, %(partition_id)s)
  AND (place.group_id, place.topic_id, place.partition_id) = (claim.group_id, claim.topic_id, claim.partition_id)
  AND claim.last_offset >= place.next_offset
