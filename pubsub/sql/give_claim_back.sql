-- Gives a lease back under which nothing was handled, through no fault of the events: the attempt does not count. The
-- range of a worker that died before stays one.
WITH gone AS (
    DELETE FROM consumer_claims
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
      AND epoch = %(epoch)s AND attempts <= 1
)
UPDATE consumer_claims SET attempts = attempts - 1, expires_at = clock_timestamp()
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
  AND epoch = %(epoch)s AND attempts > 1
