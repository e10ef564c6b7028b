-- Moves a group's cursors forward in some partitions, in the transaction that has locked them and has handled what they
-- pass.
--
-- Fails if that transaction is over, so that what was sent behind this call, such as a COMMIT, is not executed.
CREATE FUNCTION pubsub_move_cursors_v1(
    for_group text, topic integer, partitions integer[], to_offsets bigint[], to_positions bigint[], passes bigint[],
    locked_by text
) RETURNS void
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    moved integer;
BEGIN
    UPDATE consumer_offsets AS cursor
    SET next_offset = moved.to_offset, next_position = moved.to_position, passed = passed + moved.passes,
        updated_at = clock_timestamp()
    FROM unnest(partitions, to_offsets, to_positions, passes) AS moved (partition_id, to_offset, to_position, passes)
    WHERE group_id = for_group AND topic_id = topic AND cursor.partition_id = moved.partition_id
      AND pg_current_xact_id()::text = locked_by;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved <> cardinality(partitions) THEN
        RAISE EXCEPTION 'the transaction that had locked the cursor is over' USING ERRCODE = 'invalid_transaction_state';
    END IF;
END
$$;
