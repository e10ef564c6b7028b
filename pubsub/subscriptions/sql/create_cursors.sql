-- A group's cursor in each partition in which it has none; returns where it begins there, and how many events that are
-- still in the log are before that. {start_positions} is start_positions.sql. The caller holds the sequencer's lock.
WITH start_positions AS (
{start_positions})
INSERT INTO consumer_offsets AS cursor (group_id, topic_id, partition_id, next_offset, next_position, passed)
SELECT %(group_id)s, topic_id, partition_id, next_offset, next_position, passed FROM start_positions
ON CONFLICT (group_id, topic_id, partition_id) DO NOTHING
RETURNING next_offset, passed - coalesce((
    SELECT counter.retired FROM log_partition_counter AS counter
    WHERE counter.topic_id = cursor.topic_id AND counter.partition_id = cursor.partition_id
), 0)
