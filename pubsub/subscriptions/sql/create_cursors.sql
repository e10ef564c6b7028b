-- A group's cursor in each partition in which it has none. {start_positions} is start_positions.sql. The caller holds the
-- sequencer's lock.
WITH start_positions AS (
{start_positions})
INSERT INTO consumer_offsets (group_id, topic_id, partition_id, next_offset, next_position, passed)
SELECT %(group_id)s, topic_id, partition_id, next_offset, next_position, passed FROM start_positions
ON CONFLICT (group_id, topic_id, partition_id) DO NOTHING
RETURNING next_offset
