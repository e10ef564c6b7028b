-- Locks a group's cursors in some partitions until the transaction ends and returns them, without those that another worker
-- has. Notes for the transaction where they stand, for what reads from there in the same round trip.
--
-- A handler may be idle in that transaction, waiting for something else: the site's timeout for those who forget to end
-- one is not meant for it.
--
-- Only these rows are locked, so that heartbeats and operators are not in the way. A function, so that its plan is kept.
CREATE FUNCTION pubsub_lock_cursors_v1(for_group text, topic integer, partitions integer[]) RETURNS TABLE (
    partition_id integer, next_offset bigint, next_position bigint, epoch bigint, xid text
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    locked integer[] := '{}';
    positions bigint[] := '{}';
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '0', true);
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
