-- Gives a claim back under which nothing was handled, through no fault of the events: the attempt does not count. The
-- range of a worker that died before stays one. Where another worker has taken over already, and stands before the same
-- event, it has counted an attempt too many. A claim that was given back is nobody's: doing it once more does nothing.
WITH gone AS (
    DELETE FROM consumer_claims
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
      AND epoch = %(epoch)s AND worker_id = %(worker_id)s AND NOT %(taken_over)s
)
UPDATE consumer_claims AS claim
SET attempts = claim.attempts - 1,
    worker_id = CASE WHEN claim.epoch = %(epoch)s THEN '' ELSE claim.worker_id END,
    expires_at = CASE WHEN claim.epoch = %(epoch)s THEN clock_timestamp() ELSE claim.expires_at END
FROM consumer_offsets AS place
WHERE (claim.group_id, claim.topic_id, claim.partition_id) = (%(group_id)s, %(topic_id)s, %(partition_id)s)
  AND (place.group_id, place.topic_id, place.partition_id) = (claim.group_id, claim.topic_id, claim.partition_id)
  AND (claim.epoch = %(epoch)s AND claim.worker_id = %(worker_id)s AND %(taken_over)s AND claim.attempts > 0
       OR claim.epoch > %(epoch)s AND place.next_offset = %(next_offset)s AND claim.attempts > 1)
