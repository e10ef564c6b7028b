-- A group's place in a partition, locked for as long as the transaction lasts; no row if another worker has it. Only
-- this row is locked, so that heartbeats and operators are not in the way.
SELECT next_offset, next_position, epoch, pg_current_xact_id()::text FROM consumer_offsets
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
FOR UPDATE SKIP LOCKED
