-- Moves every cursor that still points into what is dropped to the end of it, whatever its group: a cursor always points
-- to what exists. Runs after count_dropped. `updated_at` stays the time of the last move of the group itself.
UPDATE consumer_offsets AS cursor
SET next_position = %(upper)s, passed = numbered.retired,
    next_offset = greatest(cursor.next_offset, coalesce(remaining.c_offset, counter.next_offset))
FROM log_partition_counter AS numbered
JOIN log_counter AS counter ON counter.topic_id = numbered.topic_id
LEFT JOIN LATERAL (
    SELECT c_offset FROM log_entry
    WHERE log_entry.topic_id = numbered.topic_id AND log_entry.partition_id = numbered.partition_id
      AND position >= %(upper)s
    ORDER BY position LIMIT 1
) AS remaining ON true
WHERE (cursor.topic_id, cursor.partition_id) = (numbered.topic_id, numbered.partition_id)
  AND cursor.passed < numbered.retired
