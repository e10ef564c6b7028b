-- Records the position from which a topic has another number of partitions. Nothing is numbered meanwhile: the caller
-- holds the sequencer's lock. If the number was already changed at this very position, one change remains.
INSERT INTO outbox_topic_resizes AS resize (topic_id, position, c_offset, partitions_before, partitions_after)
SELECT topic.id, sequencer.next_position, coalesce(counter.next_offset, 1), topic.total_partitions, %(partitions)s
FROM outbox_topics AS topic
JOIN log_sequencer AS sequencer ON sequencer.id = 1
LEFT JOIN log_counter AS counter ON counter.topic_id = topic.id
WHERE topic.id = %(topic_id)s
ON CONFLICT (topic_id, position) DO UPDATE
SET partitions_after = excluded.partitions_after, resized_at = clock_timestamp()
RETURNING position, c_offset
