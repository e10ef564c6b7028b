-- Locks a group's cursors in some partitions until the transaction ends and returns them, without those that another worker
-- has. Notes for the transaction where they stand, for what reads from there in the same round trip.
--
-- A handler may be idle in that transaction, waiting for something else: the site's timeout for those who forget to end
-- one is not meant for it.
--
-- `only_plain` is for those that have not looked for work before: where there is more to know of one of the partitions
-- than that it has new entries, none is locked, and a row of nulls says so.
--
-- is_bounded: the topic was resized, and the group has not passed that yet.
--
-- Only these rows are locked, so that heartbeats and operators are not in the way. A function, so that its plan is kept.
CREATE FUNCTION pubsub_lock_cursors_v1(
    for_group text, topic integer, partitions integer[], only_plain boolean DEFAULT false
) RETURNS TABLE (
    partition_id integer, next_offset bigint, next_position bigint, epoch bigint, xid text, is_bounded boolean
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    locked integer[] := '{}';
    positions bigint[] := '{}';
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '0', true);
    IF only_plain AND cardinality(partitions) > (
        SELECT count(*) FROM consumer_offsets AS cursor JOIN outbox_topic_subscriptions AS subscription
            ON subscription.topic_id = topic AND subscription.group_id = for_group
        WHERE cursor.group_id = for_group AND cursor.topic_id = topic AND cursor.partition_id = ANY (partitions)
          AND subscription.status = 'ACTIVE' AND cursor.failing_offset IS NULL AND cursor.rests_until IS NULL
          AND NOT pubsub_was_aborted_v1(cursor.xmax)
          AND NOT EXISTS (
              SELECT FROM consumer_claims AS lease
              WHERE lease.group_id = for_group AND lease.topic_id = topic AND lease.partition_id = cursor.partition_id
          )
          AND NOT EXISTS (
              SELECT FROM outbox_topic_resizes AS resize
              WHERE resize.topic_id = topic AND resize.position > subscription.resizes_passed
          )
    ) THEN
        partitions := '{}';
        RETURN NEXT;
    END IF;
    is_bounded := EXISTS (
        SELECT FROM outbox_topic_resizes AS resize JOIN outbox_topic_subscriptions AS subscription
            ON subscription.topic_id = topic AND subscription.group_id = for_group
        WHERE resize.topic_id = topic AND resize.position > subscription.resizes_passed
    );
    FOR partition_id, next_offset, next_position, epoch, xid IN
        SELECT partition_id, next_offset, next_position, epoch, pg_current_xact_id()::text FROM consumer_offsets
        WHERE group_id = for_group AND topic_id = topic AND partition_id = ANY (partitions)
        ORDER BY partition_id
        FOR UPDATE SKIP LOCKED
    LOOP
        locked := locked || pubsub_lock_cursors_v1.partition_id;
        positions := positions || pubsub_lock_cursors_v1.next_position;
        RETURN NEXT;
    END LOOP;
    PERFORM set_config('pubsub.locked', locked::text, true), set_config('pubsub.stands_at', positions::text, true);
END
$$;
