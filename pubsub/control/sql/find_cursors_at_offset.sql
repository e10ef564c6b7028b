-- Where a group stands in its partitions, and where it would stand if it had passed everything before an offset.
SELECT cursor.partition_id, cursor.next_offset, cursor.passed, coalesce(numbered.entries, 0),
       target.next_offset, target.next_position, target.passed
FROM consumer_offsets AS cursor
LEFT JOIN log_partition_counter AS numbered
       ON numbered.topic_id = cursor.topic_id AND numbered.partition_id = cursor.partition_id
CROSS JOIN LATERAL pubsub_cursor_at_v1(cursor.topic_id, cursor.partition_id, %(offset)s) AS target
WHERE cursor.group_id = %(group_id)s AND cursor.topic_id = %(topic_id)s
  AND (%(partitions)s::integer[] IS NULL OR cursor.partition_id = ANY (%(partitions)s::integer[]))
ORDER BY cursor.partition_id
