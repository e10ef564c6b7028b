-- A place for a group in each partition of a topic: behind everything numbered so far, or at the oldest entry that is
-- still there. The caller holds the sequencer's lock, so all partitions mean the same moment.
INSERT INTO consumer_offsets (group_id, topic_id, partition_id, next_offset, next_position, passed)
SELECT %(group_id)s, topic.id, place.partition_id,
       CASE WHEN at_end THEN coalesce(counter.next_offset, 1) ELSE oldest.c_offset END,
       CASE WHEN at_end THEN sequencer.next_position ELSE oldest.position END,
       CASE WHEN at_end THEN coalesce(numbered.entries, 0) ELSE numbered.retired END
FROM outbox_topics AS topic
CROSS JOIN generate_series(0, topic.total_partitions - 1) AS place (partition_id)
CROSS JOIN log_sequencer AS sequencer
LEFT JOIN log_counter AS counter ON counter.topic_id = topic.id
LEFT JOIN log_partition_counter AS numbered
       ON numbered.topic_id = topic.id AND numbered.partition_id = place.partition_id
LEFT JOIN LATERAL (
    SELECT c_offset, position FROM log_entry
    WHERE log_entry.topic_id = topic.id AND log_entry.partition_id = place.partition_id
    ORDER BY position LIMIT 1
) AS oldest ON true
CROSS JOIN LATERAL (SELECT %(start)s = 'latest' OR oldest.c_offset IS NULL AS at_end) AS choice
WHERE topic.id = %(topic_id)s
ON CONFLICT (group_id, topic_id, partition_id) DO NOTHING
