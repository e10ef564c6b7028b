-- What can be known before the sequencer is locked: is_there is false where the entry to start at is still to come.
-- {start_positions} is start_positions.sql.
WITH start_positions AS (
{start_positions})
SELECT partition_id, start_offset, next_offset, next_position, passed, next_position < (
    SELECT next_position FROM log_sequencer WHERE id = 1
) AS is_there
FROM start_positions
