-- Gives a lease back under which nothing was handled, through no fault of the events: the attempt does not count. The
-- range of a worker that died before stays one. Where another worker has taken over already, and stands before the same
-- event, it has counted an attempt too many. A lease that was given back has no holder: doing it once more does nothing.
WITH gone AS (
    DELETE FROM consumer_claims
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
      AND epoch = %(epoch)s AND worker_id = %(worker_id)s AND NOT %(taken_over)s
)
UPDATE consumer_claims AS lease
SET attempts = lease.attempts - 1,
    worker_id = CASE WHEN lease.epoch = %(epoch)s THEN '' ELSE lease.worker_id END,
    expires_at = CASE WHEN lease.epoch = %(epoch)s THEN clock_timestamp() ELSE lease.expires_at END
FROM consumer_offsets AS cursor
WHERE (lease.group_id, lease.topic_id, lease.partition_id) = (%(group_id)s, %(topic_id)s, %(partition_id)s)
  AND (cursor.group_id, cursor.topic_id, cursor.partition_id) = (lease.group_id, lease.topic_id, lease.partition_id)
  AND (lease.epoch = %(epoch)s AND lease.worker_id = %(worker_id)s AND %(taken_over)s AND lease.attempts > 0
       OR lease.epoch > %(epoch)s AND cursor.next_offset = %(next_offset)s AND lease.attempts > 1)
