-- Moves every place that is still in what retires behind it, whoever's it is: a place always points to what is there.
-- Comes after retire_counts. The last move of the group itself stays the time of the last move.
UPDATE consumer_offsets AS place
SET next_position = %(upper)s, passed = numbered.retired,
    next_offset = greatest(place.next_offset, coalesce(remaining.c_offset, counter.next_offset))
FROM log_partition_counter AS numbered
JOIN log_counter AS counter ON counter.topic_id = numbered.topic_id
LEFT JOIN LATERAL (
    SELECT c_offset FROM log_entry
    WHERE log_entry.topic_id = numbered.topic_id AND log_entry.partition_id = numbered.partition_id
      AND position >= %(upper)s
    ORDER BY position LIMIT 1
) AS remaining ON true
WHERE (place.topic_id, place.partition_id) = (numbered.topic_id, numbered.partition_id)
  AND place.passed < numbered.retired
