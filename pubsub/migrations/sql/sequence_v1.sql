-- One pass of the sequencer: enters every committed event that is not there yet into its topic's log.
--
-- If A committed before B was published, A comes before B; the events of a transaction are contiguous; offsets and
-- positions have no gaps; nothing is written when there is nothing new.
--
-- outcome is 'idle' (nothing new), 'busy' (another session is numbering), 'numbered' (how many events, of which topics),
-- or 'foreign' (the database has been restored into another cluster: pubsub_reanchor puts that right).
--
-- The settings make the plans independent of statistics (the tables may never have been analysed): index scans, no
-- compiling and no parallel workers, whose start alone takes milliseconds. plpgsql keeps the plans for the session:
-- planning fifty segments anew costs more than looking at them.
CREATE FUNCTION pubsub_sequence_v1(OUT outcome text, OUT events bigint, OUT topic_ids integer[])
LANGUAGE plpgsql
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET max_parallel_workers_per_gather = 0
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    state log_sequencer;
    seen_xmax xid8;
    seen_xip xid8[];
    cluster bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'pubsub_sequence_v1 was called in a % transaction', current_setting('transaction_isolation')
            USING HINT = 'Call it in a READ COMMITTED transaction: each of its statements needs a fresh snapshot.';
    END IF;
    events := 0;
    topic_ids := '{}';

    SELECT * INTO state FROM log_sequencer WHERE id = 1;
    SELECT system_identifier INTO cluster FROM pg_control_system();
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        IF EXISTS (SELECT FROM outbox_message_t WHERE xid = pg_current_xact_id_if_assigned()) THEN
            RAISE EXCEPTION 'pubsub_sequence_v1 was called in a transaction that has published'
                USING HINT = 'Commit first: what is not committed cannot be in the log.';
        END IF;
    END IF;
    IF state.system_identifier IS DISTINCT FROM cluster OR pg_snapshot_xmax(state.seen) > pg_snapshot_xmax(pg_current_snapshot()) THEN
        outcome := 'foreign';
        RETURN;
    END IF;

    seen_xmax := pg_snapshot_xmax(state.seen);
    seen_xip := ARRAY(SELECT pg_snapshot_xip(state.seen));
    IF NOT EXISTS (SELECT FROM outbox_message_t
                   WHERE xid >= seen_xmax AND xid < pg_snapshot_xmax(pg_current_snapshot())
                     AND pg_visible_in_snapshot(xid, pg_current_snapshot()))
       AND (seen_xip = '{}' OR NOT EXISTS (SELECT FROM outbox_message_t
                                           WHERE xid = ANY (seen_xip)
                                             AND pg_visible_in_snapshot(xid, pg_current_snapshot())))
    THEN
        outcome := 'idle';
        RETURN;
    END IF;

    SELECT * INTO state FROM log_sequencer WHERE id = 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        outcome := 'busy';
        RETURN;
    END IF;
    seen_xmax := pg_snapshot_xmax(state.seen);
    seen_xip := ARRAY(SELECT pg_snapshot_xip(state.seen));

    -- Only now, in a statement of its own: the snapshot of the one that locked may be older than the one stored. What it
    -- numbers is what the snapshot that it stores has seen, and no more: a row whose xid is still to come, or in
    -- progress, waits, or it would be numbered in each pass.
    WITH present AS MATERIALIZED (
        SELECT pubsub_unfinished_v1(pg_current_snapshot()) AS seen
    ), fresh AS MATERIALIZED (
        SELECT id, topic_id, xid, transaction_id, coalesce(key, host_id, transaction_id::text) AS key
        FROM outbox_message_t
        WHERE xid >= seen_xmax AND xid < (SELECT pg_snapshot_xmax(seen) FROM present)
          AND pg_visible_in_snapshot(xid, (SELECT seen FROM present))
        UNION ALL
        SELECT id, topic_id, xid, transaction_id, coalesce(key, host_id, transaction_id::text)
        FROM outbox_message_t
        WHERE xid = ANY (seen_xip) AND pg_visible_in_snapshot(xid, (SELECT seen FROM present))
    ), dated AS (
        -- By a transaction's last event: if A committed before B was published, all ids of A are smaller than it.
        -- Delayed events are moved by a transaction of its own, and keep the publishers' transaction_ids.
        SELECT *, max(id) OVER (PARTITION BY xid, transaction_id) AS last_id FROM fresh
    ), ordered AS MATERIALIZED (
        SELECT dated.id, dated.topic_id,
               row_number() OVER (ORDER BY last_id, dated.id) AS nth,
               row_number() OVER (PARTITION BY dated.topic_id ORDER BY last_id, dated.id) AS nth_in_topic,
               -- abs() of the smallest integer overflows, hence the cast
               (abs(hashtext(dated.key)::bigint) % coalesce(outbox_topics.total_partitions, 1))::integer AS partition_id
        FROM dated LEFT JOIN outbox_topics ON outbox_topics.id = dated.topic_id
    ), moved AS MATERIALIZED (
        SELECT topic_id, count(*) AS n FROM ordered GROUP BY topic_id ORDER BY topic_id
    ), reserved AS (
        INSERT INTO log_counter AS counter (topic_id, next_offset)
        SELECT topic_id, 1 + n FROM moved
        ON CONFLICT (topic_id) DO UPDATE SET next_offset = counter.next_offset + excluded.next_offset - 1
        RETURNING counter.topic_id, counter.next_offset
    ), entered AS (
        INSERT INTO log_entry (position, c_offset, message_id, topic_id, partition_id)
        SELECT state.next_position + nth - 1, reserved.next_offset - moved.n + nth_in_topic - 1,
               ordered.id, topic_id, partition_id
        FROM ordered JOIN moved USING (topic_id) JOIN reserved USING (topic_id)
        ORDER BY nth
    ), counted AS (
        INSERT INTO log_partition_counter AS counter (topic_id, partition_id, entries)
        SELECT topic_id, partition_id, count(*) FROM ordered GROUP BY topic_id, partition_id ORDER BY 1, 2
        ON CONFLICT (topic_id, partition_id) DO UPDATE SET entries = counter.entries + excluded.entries
    ), remembered AS (
        UPDATE log_sequencer
        SET seen = (SELECT seen FROM present),
            next_position = next_position + (SELECT coalesce(sum(n), 0) FROM moved)
        WHERE id = 1
    )
    SELECT CASE WHEN count(*) > 0 THEN 'numbered' ELSE 'idle' END, coalesce(sum(n), 0),
           coalesce(array_agg(topic_id), '{}')
    INTO outcome, events, topic_ids FROM moved;

    -- A plain INSERT may name a topic that does not exist. Nothing is lost: the topic is made.
    INSERT INTO outbox_topics (id, name, total_partitions)
    SELECT missing, 'undeclared-topic-' || missing, 1 FROM unnest(topic_ids) AS missing
    WHERE NOT EXISTS (SELECT FROM outbox_topics WHERE outbox_topics.id = missing)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        -- The next topic that is made must not get the same number. (One far off may be reused: it is a slip of the
        -- pen, and must not use all numbers up.)
        PERFORM setval(numbers, max(missing))
        FROM pg_get_serial_sequence('outbox_topics', 'id') AS numbers, unnest(topic_ids) AS missing
        WHERE missing - pg_sequence_last_value(numbers::regclass) BETWEEN 1 AND 1000
        GROUP BY numbers;
    END IF;
END
$$;
