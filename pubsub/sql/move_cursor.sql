-- Moves a group's place forward, in the transaction that holds its lock and handled what it passes; no row where that
-- transaction is over.
UPDATE consumer_offsets
SET next_offset = %(next_offset)s, next_position = %(next_position)s, passed = passed + %(count)s,
    updated_at = clock_timestamp()
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
  AND pg_current_xact_id()::text = %(xid)s
