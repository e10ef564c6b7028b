-- Moves a group to an offset, in each partition that the topic has or had: never back, and a cursor that is already there
-- is not written. The caller holds the sequencer's lock, so that all partitions mean the same moment.
INSERT INTO consumer_offsets AS present (group_id, topic_id, partition_id, next_offset, next_position, passed)
SELECT %(group)s, topic.id, partition_id, there.next_offset, there.next_position, there.passed
FROM outbox_topics AS topic
CROSS JOIN LATERAL (
    SELECT generate_series(0, topic.total_partitions - 1)
    UNION
    SELECT partition_id FROM log_partition_counter WHERE topic_id = topic.id
) AS partitions (partition_id)
CROSS JOIN LATERAL pubsub_cursor_at_v1(topic.id, partition_id, %(next_offset)s) AS there
WHERE topic.id = %(topic_id)s
ON CONFLICT (group_id, topic_id, partition_id) DO UPDATE
SET next_offset = excluded.next_offset, next_position = excluded.next_position, passed = excluded.passed,
    updated_at = clock_timestamp()
WHERE present.next_offset < excluded.next_offset
