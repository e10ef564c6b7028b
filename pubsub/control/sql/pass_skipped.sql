-- Moves a group's cursor behind what was skipped, as a worker does behind what it has handled.
SELECT pubsub_move_cursor_v1(
    %(group_id)s, %(topic_id)s, %(partition_id)s, %(next_offset)s, %(next_position)s, %(count)s, %(xid)s
)
