-- The same as lock_cursors.sql, but waits for workers to finish their batches.
SELECT partition_id FROM consumer_offsets
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s
  AND (%(partitions)s::integer[] IS NULL OR partition_id = ANY (%(partitions)s::integer[]))
ORDER BY partition_id
FOR UPDATE
