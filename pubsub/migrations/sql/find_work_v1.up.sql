-- Which of the given groups' partitions have something to do: entries that have not been passed, failed events whose
-- time has come, or a claim that a dead worker has left; the one that has waited longest comes first. Reads a few small
-- rows and never the log. Tells also where a worker seems to have died, and up to where the group may read while it has
-- not passed a resize.
--
-- What another worker has under a lease is told as taken, with nothing to do. New entries behind a failure that stops
-- the partition are left out. A group that has nothing left before a resize goes on behind it.
CREATE FUNCTION pubsub_find_work_v1(
    topics text[], groups text[], partitions integer[], worker text, alive_family integer
) RETURNS TABLE (
    group_id text, topic text, topic_id integer, partition_id integer, below_position bigint,
    has_new boolean, has_due boolean, suspect boolean, is_taken boolean
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
    SELECT place.group_id, wanted.topic, place.topic_id, place.partition_id, resize.position,
           NOT claim.is_taken AND CASE
               -- Nobody handles again what may have been handled: it has become dead letters when this is looked at.
               WHEN claim.exists AND place.delivery = 'at_most_once' THEN true
               WHEN place.on_failure = 'stop' AND EXISTS (
                   SELECT FROM dead_letter_queue AS letter
                   WHERE letter.group_id = place.group_id AND letter.topic_id = place.topic_id
                     AND letter.partition_id = place.partition_id AND letter.state IN ('retrying', 'dead', 'parked')
               ) THEN false
               WHEN claim.exists THEN true
               WHEN resize.position IS NULL THEN place.has_entries
               ELSE place.has_entries AND EXISTS (
                   SELECT FROM log_entry AS entry
                   WHERE entry.topic_id = place.topic_id AND entry.partition_id = place.partition_id
                     AND entry.position >= place.next_position AND entry.position < resize.position
               )
           END,
           NOT claim.is_taken AND due.exist,
           claim.exists OR pubsub_was_aborted_v1(place.locked_by),
           claim.is_taken
    FROM unnest(topics, groups) AS wanted (topic, group_id)
    JOIN LATERAL (
        SELECT place.group_id, place.topic_id, place.partition_id, place.next_position, place.updated_at,
               place.xmax AS locked_by, subscription.delivery, subscription.on_failure, subscription.resizes_passed,
               coalesce(numbered.entries, 0) > place.passed AS has_entries
        FROM outbox_topics AS topic
        JOIN outbox_topic_subscriptions AS subscription
          ON subscription.topic_id = topic.id AND subscription.group_id = wanted.group_id
         AND subscription.status = 'ACTIVE'
        JOIN consumer_offsets AS place ON place.group_id = wanted.group_id AND place.topic_id = topic.id
        LEFT JOIN log_partition_counter AS numbered
               ON numbered.topic_id = place.topic_id AND numbered.partition_id = place.partition_id
        WHERE topic.name = wanted.topic
    ) AS place ON true
    CROSS JOIN LATERAL (
        SELECT EXISTS (
            SELECT FROM dead_letter_queue AS letter
            WHERE letter.group_id = place.group_id AND letter.topic_id = place.topic_id
              AND letter.partition_id = place.partition_id
              AND letter.state = 'retrying' AND letter.next_attempt_at <= statement_timestamp()
        ) AS exist
    ) AS due
    CROSS JOIN LATERAL (
        SELECT count(*) > 0 AS exists,
               coalesce(bool_or(
                   held.worker_id <> worker AND held.expires_at > clock_timestamp()
                   AND (held.lock_key IS NULL OR NOT pg_try_advisory_xact_lock_shared(alive_family, held.lock_key))
               ), false) AS is_taken
        FROM consumer_claims AS held
        WHERE held.group_id = place.group_id AND held.topic_id = place.topic_id
          AND held.partition_id = place.partition_id
    ) AS claim
    LEFT JOIN LATERAL (
        SELECT min(position) AS position FROM outbox_topic_resizes AS resize
        WHERE resize.topic_id = place.topic_id AND resize.position > place.resizes_passed
    ) AS resize ON true
    WHERE (partitions IS NULL OR place.partition_id = ANY (partitions))
      AND (place.has_entries OR due.exist OR claim.exists)
    ORDER BY place.updated_at;
END
$$;
