-- A place for a group in each partition of a topic: behind everything numbered so far ("latest"), or at the first entry
-- that is still there ("earliest"), has a given offset or a later one ("offset"), or was published at a given time or
-- later ("timestamp"). Partitions from before a resize count while anything is left in them. The caller holds the
-- sequencer's lock, so all partitions mean the same moment.
--
-- The log is in the order of commits, not of times: a time means the first entry in the log that is not older.
INSERT INTO consumer_offsets (group_id, topic_id, partition_id, next_offset, next_position, passed)
SELECT %(group_id)s, topic.id, partition_id, place.next_offset, place.next_position, place.passed
FROM outbox_topics AS topic
CROSS JOIN LATERAL (
    SELECT generate_series(0, topic.total_partitions - 1)
    UNION
    SELECT numbered.partition_id FROM log_partition_counter AS numbered
    WHERE numbered.topic_id = topic.id AND numbered.entries > numbered.retired
) AS present (partition_id)
CROSS JOIN LATERAL (
    SELECT CASE %(start)s
        WHEN 'earliest' THEN 1
        WHEN 'offset' THEN %(start_offset)s::bigint
        WHEN 'timestamp' THEN pubsub_offset_at_v1(topic.id, %(start_time)s::timestamptz)
    END AS c_offset
    OFFSET 0
) AS start
CROSS JOIN LATERAL pubsub_place_at_v1(topic.id, partition_id, coalesce(start.c_offset, 9223372036854775807)) AS place
WHERE topic.id = %(topic_id)s
ON CONFLICT (group_id, topic_id, partition_id) DO NOTHING
RETURNING next_offset
