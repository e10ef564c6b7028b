-- Moves a group's place forward, in the transaction that handled what it passes.
UPDATE consumer_offsets
SET next_offset = %(next_offset)s, next_position = %(next_position)s, passed = passed + %(count)s,
    updated_at = clock_timestamp()
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
