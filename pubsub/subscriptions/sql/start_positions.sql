-- Where a group begins in each partition of a topic: behind everything numbered so far ("latest"), or at the first entry
-- that is still there ("earliest"), has a given offset or a later one ("offset"), or was published at a given time or
-- later ("timestamp"). Partitions from before a resize count while anything is left in them.
--
-- The log is in the order of commits, not of times: a time means the first entry in the log that is not older.
--
-- An old time takes long to find, an old offset long to count up to. So it is asked twice: before the sequencer is
-- locked, and under the lock, where all partitions mean the same moment; what was found before is then passed as `known`.
-- How many entries come before one never changes, unless retention has dropped it meanwhile: then it is looked up again.
SELECT topic.id AS topic_id, present.partition_id, start.c_offset AS start_offset,
       coalesce(known.next_offset, cursor.next_offset) AS next_offset,
       coalesce(known.next_position, cursor.next_position) AS next_position,
       coalesce(known.passed, cursor.passed) AS passed
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
        WHEN 'timestamp' THEN coalesce(
            %(start_offset)s::bigint, pubsub_offset_at_v1(topic.id, %(start_time)s::timestamptz)
        )
    END AS c_offset
    OFFSET 0
) AS start
LEFT JOIN jsonb_to_recordset(%(known)s::jsonb)
    AS known (partition_id integer, next_offset bigint, next_position bigint, passed bigint)
    ON known.partition_id = present.partition_id
   AND EXISTS (SELECT FROM log_entry WHERE topic_id = topic.id AND c_offset = known.next_offset)
LEFT JOIN LATERAL (
    SELECT *
    FROM pubsub_cursor_at_v1(topic.id, present.partition_id, coalesce(start.c_offset, 9223372036854775807))
    WHERE known.partition_id IS NULL
    OFFSET 0  -- so that it is really not called
) AS cursor ON true
WHERE topic.id = %(topic_id)s
