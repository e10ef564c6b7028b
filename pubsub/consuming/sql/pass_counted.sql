-- After a guarded attempt that has moved the cursor: the lease goes, unless more is left of what the worker that died
-- may have had in hand. Then it is for the next worker.
WITH gone AS (
    DELETE FROM consumer_claims AS lease USING consumer_offsets AS cursor
    WHERE (lease.group_id, lease.topic_id, lease.partition_id) = (%(group_id)s, %(topic_id)s, %(partition_id)s)
      AND (cursor.group_id, cursor.topic_id, cursor.partition_id) = (lease.group_id, lease.topic_id, lease.partition_id)
      AND lease.last_offset < cursor.next_offset
)
UPDATE consumer_claims AS lease SET attempts = 0, worker_id = '', expires_at = clock_timestamp()
FROM consumer_offsets AS cursor
WHERE (lease.group_id, lease.topic_id, lease.partition_id) = (%(group_id)s, %(topic_id)s, %(partition_id)s)
  AND (cursor.group_id, cursor.topic_id, cursor.partition_id) = (lease.group_id, lease.topic_id, lease.partition_id)
  AND lease.last_offset >= cursor.next_offset
