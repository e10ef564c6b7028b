-- Which of the given groups' partitions have something to do; the one that has waited longest comes first.
--
-- That is: entries that have not been passed, failed events whose time has come, or a lease that a dead worker has left.
-- New entries behind a failure that stops the partition do not count. Reads a few small rows and, but for a resize, never
-- the log.
--
-- is_leased: another worker has a lease there, so that there is nothing to do. crashed: a worker seems to have died there.
-- is_resting: the database has failed there, and all workers leave it alone for a while. failing_offset, failures,
-- failing_s: where, how often in a row, and for how long; is_ahead: the group has not passed that yet.
-- events: how many the group has not passed.
-- below_position: the group may read only so far, because it has not passed a resize; once nothing is left before that,
-- it goes on behind it.
CREATE FUNCTION pubsub_find_work_v1(
    topics text[], groups text[], partitions integer[], worker text, alive_family integer
) RETURNS TABLE (
    group_id text, topic text, topic_id integer, partition_id integer, below_position bigint,
    has_new boolean, has_due boolean, crashed boolean, is_leased boolean,
    is_resting boolean, failing_offset bigint, failures integer, failing_s double precision, is_ahead boolean,
    events bigint
)
LANGUAGE plpgsql
SET jit = off
SET max_parallel_workers_per_gather = 0
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM outbox_topic_resizes;
    IF FOUND THEN
        PERFORM pubsub_pass_resizes_v1(topics, groups);
    END IF;

    RETURN QUERY
    SELECT cursor.group_id, asked.topic, cursor.topic_id, cursor.partition_id, resize.position,
           NOT lease.is_held AND CASE
               -- What may have been handled is not handled again: the next worker makes it dead letters.
               WHEN lease.exists AND cursor.delivery = 'at_most_once' THEN true
               WHEN cursor.on_failure = 'stop' AND EXISTS (
                   SELECT FROM dead_letter_queue AS letter
                   WHERE letter.group_id = cursor.group_id AND letter.topic_id = cursor.topic_id
                     AND letter.partition_id = cursor.partition_id AND letter.state IN ('retrying', 'dead', 'parked')
               ) THEN false
               WHEN lease.exists THEN true
               WHEN resize.position IS NULL THEN cursor.has_entries
               ELSE cursor.has_entries AND EXISTS (
                   SELECT FROM log_entry AS entry
                   WHERE entry.topic_id = cursor.topic_id AND entry.partition_id = cursor.partition_id
                     AND entry.position >= cursor.next_position AND entry.position < resize.position
               )
           END,
           NOT lease.is_held AND due.exist,
           lease.exists OR pubsub_was_aborted_v1(cursor.locked_by),
           lease.is_held,
           coalesce(cursor.rests_until > clock_timestamp(), false),
           cursor.failing_offset, cursor.failures, cursor.failing_s,
           coalesce(cursor.failing_offset >= cursor.next_offset, false),
           cursor.waiting
    FROM unnest(topics, groups) AS asked (topic, group_id)
    JOIN LATERAL (
        SELECT cursor.group_id, cursor.topic_id, cursor.partition_id, cursor.next_position, cursor.updated_at,
               cursor.next_offset, cursor.rests_until, cursor.failing_offset, cursor.failures, cursor.failing_s,
               cursor.xmax AS locked_by, subscription.delivery, subscription.on_failure, subscription.resizes_passed,
               coalesce(numbered.entries, 0) > cursor.passed AS has_entries,
               greatest(coalesce(numbered.entries, 0) - cursor.passed, 0) AS waiting
        FROM outbox_topics AS topic
        JOIN outbox_topic_subscriptions AS subscription
          ON subscription.topic_id = topic.id AND subscription.group_id = asked.group_id
         AND subscription.status = 'ACTIVE'
        JOIN consumer_offsets AS cursor ON cursor.group_id = asked.group_id AND cursor.topic_id = topic.id
        LEFT JOIN log_partition_counter AS numbered
               ON numbered.topic_id = cursor.topic_id AND numbered.partition_id = cursor.partition_id
        WHERE topic.name = asked.topic
    ) AS cursor ON true
    CROSS JOIN LATERAL (
        SELECT EXISTS (
            SELECT FROM dead_letter_queue AS letter
            WHERE letter.group_id = cursor.group_id AND letter.topic_id = cursor.topic_id
              AND letter.partition_id = cursor.partition_id
              AND letter.state = 'retrying' AND letter.next_attempt_at <= statement_timestamp()
        ) AS exist
    ) AS due
    CROSS JOIN LATERAL (
        SELECT count(*) > 0 AS exists,
               coalesce(bool_or(
                   held.worker_id <> worker AND held.expires_at > clock_timestamp()
                   AND (held.lock_key IS NULL OR NOT pg_try_advisory_xact_lock_shared(alive_family, held.lock_key))
               ), false) AS is_held
        FROM consumer_claims AS held
        WHERE held.group_id = cursor.group_id AND held.topic_id = cursor.topic_id
          AND held.partition_id = cursor.partition_id
    ) AS lease
    LEFT JOIN LATERAL (
        SELECT min(position) AS position FROM outbox_topic_resizes AS resize
        WHERE resize.topic_id = cursor.topic_id AND resize.position > cursor.resizes_passed
    ) AS resize ON true
    WHERE (partitions IS NULL OR cursor.partition_id = ANY (partitions))
      AND (cursor.has_entries OR due.exist OR lease.exists)
    ORDER BY cursor.updated_at;
END
$$;
