-- Moves a group's cursor behind what was skipped, as a worker does behind what it has handled.
SELECT pubsub_move_cursors_v1(
    %(group_id)s, %(topic_id)s, ARRAY[%(partition_id)s], ARRAY[%(next_offset)s]::bigint[],
    ARRAY[%(next_position)s]::bigint[], ARRAY[%(count)s]::bigint[], %(xid)s
)
