-- The cursor of a group that has passed everything before an offset, in one partition of a topic.
--
-- For beginning, for seeking and for reading by offset. One statement, so that its three values are of the same moment.
-- What lies before the offset can only be counted, and is counted on the shorter side: nothing at either end of the log.
CREATE FUNCTION pubsub_cursor_at_v1(
    topic integer, partition integer, from_offset bigint,
    OUT next_offset bigint, OUT next_position bigint, OUT passed bigint
)
LANGUAGE sql STABLE
SET jit = off
SET max_parallel_workers_per_gather = 0
AS $$
SELECT coalesce(target.c_offset, counter.next_offset, 1),
       coalesce(target.position, sequencer.next_position),
       CASE
           WHEN target.position IS NULL THEN coalesce(numbered.entries, 0)
           WHEN target.c_offset - oldest.c_offset < counter.next_offset - target.c_offset THEN numbered.retired + (
               SELECT count(*) FROM log_entry
               WHERE topic_id = topic AND partition_id = partition
                 AND position >= oldest.position AND position < target.position
           )
           ELSE numbered.entries - (
               SELECT count(*) FROM log_entry
               WHERE topic_id = topic AND partition_id = partition AND position >= target.position
           )
       END
FROM log_sequencer AS sequencer
LEFT JOIN log_counter AS counter ON counter.topic_id = topic
LEFT JOIN LATERAL (
    SELECT coalesce(sum(entries), 0)::bigint AS entries, coalesce(sum(retired), 0)::bigint AS retired
    FROM log_partition_counter WHERE topic_id = topic AND partition_id = partition
) AS numbered ON true
LEFT JOIN LATERAL (
    SELECT c_offset, position FROM log_entry WHERE topic_id = topic ORDER BY c_offset LIMIT 1
) AS oldest ON true
LEFT JOIN LATERAL (
    SELECT c_offset, position FROM log_entry
    WHERE topic_id = topic AND c_offset >= from_offset ORDER BY c_offset LIMIT 1
) AS target ON true
$$;
