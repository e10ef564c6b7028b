-- One pass of the sequencer: enters every committed event that is not there yet into its topic's log.
--
-- If A committed before B was published, A comes before B; the events of a transaction are contiguous; offsets and
-- positions have no gaps; nothing is written when there is nothing new.
--
-- outcome is 'idle' (nothing new), 'busy' (another session is numbering), 'numbered' (how many events, of which topics,
-- in which partitions, such as 1:0,1:3), or 'foreign' (the database has been restored into another cluster: pubsub_reanchor puts that right).
--
-- A backlog of more than `most` events is numbered in pieces of about as many, so that the first of them are handled
-- soon, and a pass that is cut short costs little. Which transactions belong to the backlog is settled by its first
-- pass; the pieces follow each other by the last ids of the transactions, none of which is divided.
--
-- A pass commits durably, whatever the database's default: an offset that others have seen must keep its event.
--
-- The settings make the plans independent of statistics (the tables may never have been analysed): index scans, no
-- compiling and no parallel workers, whose start alone takes milliseconds. plpgsql keeps the plans for the session:
-- planning fifty segments again costs more than looking at them.
CREATE FUNCTION pubsub_sequence_v1(
    most bigint DEFAULT 100000, OUT outcome text, OUT events bigint, OUT topic_ids integer[], OUT partitions text
)
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
    -- What this pass numbers: what is visible of the transactions from one on, and of some more, by their last ids.
    from_xid xid8;
    xids xid8[];
    after_id bigint := -9223372036854775808;
    upto_id bigint := 9223372036854775807;
    none CONSTANT xid8 := '18446744073709551615';
    issued bigint;
    cut bigint;
    waiting bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'pubsub_sequence_v1 was called in a % transaction', current_setting('transaction_isolation')
            USING HINT = 'Call it in a READ COMMITTED transaction: each of its statements needs a fresh snapshot.';
    END IF;
    events := 0;
    topic_ids := '{}';
    partitions := '';

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
    -- An xid that is still to come, or in progress, was copied from another cluster, or forged: its row waits for it.
    IF NOT EXISTS (
           SELECT FROM outbox_message_t
           WHERE xid >= seen_xmax AND xid < pg_snapshot_xmax(pg_current_snapshot())
             AND pg_visible_in_snapshot(xid, pg_current_snapshot())
       )
       AND (seen_xip = '{}' OR NOT EXISTS (
           SELECT FROM outbox_message_t
           WHERE xid = ANY (seen_xip) AND pg_visible_in_snapshot(xid, pg_current_snapshot())
       ))
    THEN
        outcome := 'idle';
        RETURN;
    END IF;

    SELECT * INTO state FROM log_sequencer WHERE id = 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        outcome := 'busy';
        RETURN;
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    from_xid := pg_snapshot_xmax(state.seen);
    xids := ARRAY(SELECT pg_snapshot_xip(state.seen));

    -- Only now, in statements of their own: the snapshot of the one that locked may be older than the one stored.
    SELECT last_value INTO issued FROM outbox_message_t_id_seq;
    IF state.backlog IS NULL AND issued - state.reached_id > most THEN
        SELECT min(id) - 1, count(*), pubsub_unfinished_v1(pg_current_snapshot())
        INTO cut, waiting, state.backlog
        FROM (
            SELECT id FROM outbox_message_t WHERE xid >= from_xid AND xid < pg_snapshot_xmax(pg_current_snapshot())
            UNION ALL
            SELECT id FROM outbox_message_t WHERE xid = ANY (xids)
        ) AS fresh;
        IF waiting > most THEN
            state.reached_id := cut;
        ELSE
            state.backlog := NULL;
        END IF;
    END IF;

    IF state.backlog IS NOT NULL THEN
        SELECT max(id) FILTER (WHERE nth <= most), count(*) INTO cut, waiting
        FROM (
            SELECT id, row_number() OVER (ORDER BY id) AS nth FROM outbox_message_t
            WHERE id > state.reached_id AND pg_visible_in_snapshot(xid, state.backlog)
              AND NOT pg_visible_in_snapshot(xid, state.seen)
            ORDER BY id LIMIT most + 1
        ) AS next;
        IF waiting = 0 THEN
            -- The last piece has used it up. What has come since is numbered as ever.
            from_xid := pg_snapshot_xmax(state.backlog);
            xids := ARRAY(SELECT pg_snapshot_xip(state.backlog));
            state.backlog := NULL;
        END IF;
    END IF;

    IF state.backlog IS NOT NULL THEN
        from_xid := none;
        after_id := state.reached_id;
        IF waiting > most THEN
            upto_id := cut;
        END IF;
        LOOP
            xids := ARRAY(
                SELECT DISTINCT xid FROM outbox_message_t
                WHERE id > after_id AND id <= upto_id AND pg_visible_in_snapshot(xid, state.backlog)
                  AND NOT pg_visible_in_snapshot(xid, state.seen)
            );
            EXIT WHEN waiting <= most;
            -- A transaction that goes on behind the piece belongs to a later one, unless no other ends within it.
            SELECT min(last_id) INTO cut FROM (
                SELECT max(id) AS last_id FROM outbox_message_t WHERE xid = ANY (xids) GROUP BY xid, transaction_id
            ) AS ends
            WHERE last_id > after_id;
            EXIT WHEN cut <= upto_id;
            upto_id := cut;
        END LOOP;
    END IF;

    -- What is numbered is what the snapshot that is stored has seen, and no more.
    WITH present AS MATERIALIZED (
        SELECT pubsub_unfinished_v1(pg_current_snapshot()) AS seen
    ), fresh AS MATERIALIZED (
        SELECT id, topic_id, xid, transaction_id, coalesce(key, host_id, transaction_id::text) AS key
        FROM outbox_message_t
        WHERE xid >= from_xid AND xid < (SELECT pg_snapshot_xmax(seen) FROM present)
          AND pg_visible_in_snapshot(xid, (SELECT seen FROM present))
        UNION ALL
        SELECT id, topic_id, xid, transaction_id, coalesce(key, host_id, transaction_id::text)
        FROM outbox_message_t
        WHERE xid = ANY (xids) AND pg_visible_in_snapshot(xid, (SELECT seen FROM present))
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
        WHERE last_id > after_id AND last_id <= upto_id
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
        SET seen = CASE
                WHEN state.backlog IS NULL THEN (SELECT seen FROM present)
                WHEN waiting <= most THEN state.backlog
                ELSE seen
            END,
            backlog = CASE WHEN waiting > most THEN state.backlog END,
            reached_id = CASE WHEN state.backlog IS NULL THEN issued WHEN waiting > most THEN upto_id ELSE reached_id END,
            next_position = next_position + (SELECT coalesce(sum(n), 0) FROM moved)
        WHERE id = 1
    )
    SELECT CASE WHEN count(*) > 0 THEN 'numbered' ELSE 'idle' END, coalesce(sum(n), 0),
           coalesce(array_agg(topic_id), '{}'),
           (SELECT coalesce(string_agg(DISTINCT topic_id || ':' || partition_id, ','), '') FROM ordered)
    INTO outcome, events, topic_ids, partitions FROM moved;

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
