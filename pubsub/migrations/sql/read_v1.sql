-- The next events of some partitions from a position in each on, below another one or below a resize that the group has
-- not passed.
--
-- `for_all` is for what several groups read together: an event that is for one of them comes as if for another.
--
-- Those for another group come without their content: they are only passed. Storage order is index order: the read opens
-- only the segments that it needs and stops at the limit, which is for each partition. A function, so that its plan is
-- kept for the session: with many segments planning costs more than reading. JSON comes as text: behind the function it
-- would be copied once more.
CREATE FUNCTION pubsub_read_v1(
    topic integer, for_group text, partitions integer[], positions bigint[], below_position bigint, at_most integer,
    for_all boolean DEFAULT false
) RETURNS TABLE (
    partition_id integer, "position" bigint, c_offset bigint, transaction_id uuid, is_mine boolean, event_id uuid,
    type text, key text, payload text, metadata text, host_id text, user_id text, created_at timestamptz
)
LANGUAGE plpgsql STABLE
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET max_parallel_workers_per_gather = 0
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    -- A resize may have come since the caller looked. A snapshot that sees an entry behind it sees the resize as well.
    IF below_position IS NULL THEN
        SELECT min(resize.position) INTO below_position
        FROM outbox_topic_resizes AS resize JOIN outbox_topic_subscriptions AS subscription
          ON subscription.topic_id = resize.topic_id AND subscription.group_id = for_group
        WHERE resize.topic_id = topic AND resize.position > subscription.resizes_passed;
    END IF;
    -- Entries first, and in order, then each one's event: a plan that was made while the tables were empty is kept until
    -- they are analysed again. As a plain join it went through all events for each entry.
    RETURN QUERY
    SELECT entry.partition_id, entry.position, entry.c_offset, message.transaction_id,
           message.to_group IS NULL OR (message.to_group = for_group AND NOT for_all), message.event_id,
           message.type, message.key,
           CASE WHEN message.to_group IS NULL OR (message.to_group = for_group AND NOT for_all)
                THEN message.payload::text END,
           message.metadata::text, message.host_id, message.user_id, message.created_at
    FROM (
        SELECT asked.partition_id, next.position, next.c_offset, next.message_id
        FROM unnest(partitions, positions) AS asked (partition_id, from_position)
        CROSS JOIN LATERAL (
            SELECT position, c_offset, message_id FROM log_entry
            WHERE topic_id = topic AND partition_id = asked.partition_id
              AND position >= asked.from_position AND position < coalesce(below_position, 9223372036854775807)
            ORDER BY position
            LIMIT at_most
        ) AS next
        ORDER BY asked.partition_id, next.position
    ) AS entry
    CROSS JOIN LATERAL (
        SELECT * FROM outbox_message_t WHERE id = entry.message_id OFFSET 0
    ) AS message
    ORDER BY entry.partition_id, entry.position;
END
$$;
