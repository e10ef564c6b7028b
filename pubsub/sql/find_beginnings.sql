-- Behind beginnings.sql: what can be known before the sequencer is locked. Where there is no entry yet one may come.
SELECT partition_id, start_offset, next_offset, next_position, passed, next_position < (
    SELECT next_position FROM log_sequencer WHERE id = 1
) AS is_there
FROM beginnings
