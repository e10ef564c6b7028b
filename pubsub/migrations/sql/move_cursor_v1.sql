-- Moves a group's cursor forward, in the transaction that has locked it and has handled what it passes.
--
-- Fails if that transaction is over, so that what was sent behind this call, such as a COMMIT, is not executed.
CREATE FUNCTION pubsub_move_cursor_v1(
    for_group text, topic integer, partition integer,
    to_offset bigint, to_position bigint, passes bigint, locked_by text
) RETURNS void
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    UPDATE consumer_offsets
    SET next_offset = to_offset, next_position = to_position, passed = passed + passes,
        updated_at = clock_timestamp()
    WHERE group_id = for_group AND topic_id = topic AND partition_id = partition
      AND pg_current_xact_id()::text = locked_by;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the transaction that had locked the cursor is over' USING ERRCODE = 'invalid_transaction_state';
    END IF;
END
$$;
