-- Moves a group's cursor forward behind what was handled under a lease, if it is still the same lease: otherwise nothing
-- changes, and 0 is returned. The lease goes, unless it is to be kept for what is still in hand, or the range of a
-- worker that died is not at its end: then it stays for the next worker.
--
-- The cursor is locked before the lease, as all do that take one or move it.
WITH cursor AS MATERIALIZED (
    SELECT FROM consumer_offsets
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
    FOR UPDATE
), mine AS MATERIALIZED (
    SELECT FROM consumer_claims
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
      AND epoch = %(epoch)s AND EXISTS (SELECT FROM cursor)
    FOR UPDATE
), moved AS (
    UPDATE consumer_offsets
    SET next_offset = %(next_offset)s, next_position = %(next_position)s, passed = passed + %(count)s,
        updated_at = clock_timestamp()
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
      AND EXISTS (SELECT FROM mine)
    RETURNING 1
), gone AS (
    DELETE FROM consumer_claims
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
      AND epoch = %(epoch)s AND NOT %(keep)s AND (last_offset < %(next_offset)s OR NOT %(taken_over)s)
      AND EXISTS (SELECT FROM mine)
), kept AS (
    UPDATE consumer_claims
    SET first_offset = CASE WHEN %(keep_range)s THEN first_offset ELSE %(next_offset)s END,
        last_offset = CASE WHEN %(keep_range)s THEN last_offset ELSE greatest(last_offset, %(next_offset)s) END,
        attempts = CASE WHEN %(keep)s THEN 1 ELSE 0 END,
        expires_at = CASE WHEN %(keep)s THEN expires_at ELSE clock_timestamp() END
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
      AND epoch = %(epoch)s AND (%(keep)s OR last_offset >= %(next_offset)s AND %(taken_over)s)
      AND EXISTS (SELECT FROM mine)
)
SELECT count(*) FROM moved
