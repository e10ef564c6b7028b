-- Puts a stream's group where it has come to, in each partition that the topic has or has had; never back, and nothing
-- is written where it stands there already.
INSERT INTO consumer_offsets AS place (group_id, topic_id, partition_id, next_offset, next_position, passed)
SELECT %(group)s, topic.id, numbers.partition_id, there.next_offset, there.next_position, there.passed
FROM outbox_topics AS topic
CROSS JOIN generate_series(0, greatest(topic.total_partitions - 1, (
    SELECT max(partition_id) FROM log_partition_counter WHERE topic_id = topic.id
))) AS numbers (partition_id)
CROSS JOIN LATERAL pubsub_place_at_v1(topic.id, numbers.partition_id, %(next_offset)s) AS there
WHERE topic.id = %(topic_id)s
ON CONFLICT (group_id, topic_id, partition_id) DO UPDATE
SET next_offset = excluded.next_offset, next_position = excluded.next_position, passed = excluded.passed,
    updated_at = clock_timestamp()
WHERE place.next_offset < excluded.next_offset
