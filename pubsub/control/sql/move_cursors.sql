-- Moves a group's cursors. Existing leases end with the old epoch: acknowledgements from their workers are
-- rejected.
WITH ended AS (
    DELETE FROM consumer_claims
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = ANY (%(partitions)s::integer[])
)
UPDATE consumer_offsets AS cursor
SET next_offset = target.next_offset, next_position = target.next_position, passed = target.passed,
    epoch = cursor.epoch + 1, updated_at = clock_timestamp(),
    failing_offset = NULL, failures = 0, failing_s = 0, rests_until = NULL
FROM unnest(%(partitions)s::integer[], %(offsets)s::bigint[], %(positions)s::bigint[], %(passed)s::bigint[])
     AS target (partition_id, next_offset, next_position, passed)
WHERE cursor.group_id = %(group_id)s AND cursor.topic_id = %(topic_id)s AND cursor.partition_id = target.partition_id
