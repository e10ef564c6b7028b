-- Where a group stands in its partitions, and where it would stand if it had passed everything before an offset.
SELECT place.partition_id, place.next_offset, place.passed, coalesce(numbered.entries, 0),
       target.next_offset, target.next_position, target.passed
FROM consumer_offsets AS place
LEFT JOIN log_partition_counter AS numbered
       ON numbered.topic_id = place.topic_id AND numbered.partition_id = place.partition_id
CROSS JOIN LATERAL pubsub_place_at_v1(place.topic_id, place.partition_id, %(offset)s) AS target
WHERE place.group_id = %(group_id)s AND place.topic_id = %(topic_id)s
  AND (%(partitions)s::integer[] IS NULL OR place.partition_id = ANY (%(partitions)s::integer[]))
ORDER BY place.partition_id
