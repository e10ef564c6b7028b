-- The first offset of a topic whose event was published at or after a time; the next free one if there is none.
--
-- Nothing that was published at or after the time comes before it. Times are not quite in the order of the log, which is
-- that of the commits: an event may be older than its neighbours by as long as its transaction went on after publishing.
-- The search halves the log by times that are `slack` older than asked for, then looks at one event after the other.
-- Only where 200 events in a row were published longer than that before they were committed, or were delayed, can it
-- miss an earlier one.
CREATE FUNCTION pubsub_offset_at_v1(topic integer, at timestamptz, slack interval DEFAULT '10 minutes') RETURNS bigint
LANGUAGE plpgsql STABLE
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET max_parallel_workers_per_gather = 0
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    looked_at CONSTANT integer := 200;
    low bigint := (SELECT c_offset FROM log_entry WHERE topic_id = topic ORDER BY c_offset LIMIT 1);
    tip CONSTANT bigint := coalesce((SELECT next_offset FROM log_counter WHERE topic_id = topic), 1);
    high bigint := tip;
    middle bigint;
    newest timestamptz;
    found bigint;
BEGIN
    WHILE high - low > 4 * looked_at LOOP
        middle := low + (high - low) / 2;
        SELECT max(created_at) INTO newest FROM (
            SELECT message.created_at
            FROM log_entry AS entry JOIN outbox_message_t AS message ON message.id = entry.message_id
            WHERE entry.topic_id = topic AND entry.c_offset >= middle ORDER BY entry.c_offset LIMIT looked_at
        ) AS around;
        IF newest < at - slack THEN
            low := middle;
        ELSE
            high := middle + looked_at;
        END IF;
    END LOOP;
    SELECT entry.c_offset INTO found
    FROM log_entry AS entry JOIN outbox_message_t AS message ON message.id = entry.message_id
    WHERE entry.topic_id = topic AND entry.c_offset >= low AND message.created_at >= at
    ORDER BY entry.c_offset LIMIT 1;
    RETURN coalesce(found, tip);
END
$$;
