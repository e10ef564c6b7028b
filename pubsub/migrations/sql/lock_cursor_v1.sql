-- Locks a group's cursor in a partition until the transaction ends and returns it; no row if another worker has it.
--
-- A handler may be idle in that transaction, waiting for something else: the site's timeout for those who forget to end
-- one is not meant for it.
--
-- Only this row is locked, so that heartbeats and operators are not in the way. A function, so that its plan is kept.
CREATE FUNCTION pubsub_lock_cursor_v1(
    for_group text, topic integer, partition integer,
    OUT next_offset bigint, OUT next_position bigint, OUT epoch bigint, OUT xid text
) RETURNS SETOF record
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '0', true);
    RETURN QUERY
    SELECT next_offset, next_position, epoch, pg_current_xact_id()::text FROM consumer_offsets
    WHERE group_id = for_group AND topic_id = topic AND partition_id = partition
    FOR UPDATE SKIP LOCKED;
END
$$;
