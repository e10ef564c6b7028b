-- A group's cursors in the given partitions, or in all, locked one after the other, except those that a worker
-- holds.
SELECT partition_id FROM consumer_offsets
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s
  AND (%(partitions)s::integer[] IS NULL OR partition_id = ANY (%(partitions)s::integer[]))
ORDER BY partition_id
FOR UPDATE SKIP LOCKED
