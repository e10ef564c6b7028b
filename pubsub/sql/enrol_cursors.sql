-- Behind beginnings.sql: a place for a group in each partition in which it has none. The caller holds the sequencer's lock.
INSERT INTO consumer_offsets (group_id, topic_id, partition_id, next_offset, next_position, passed)
SELECT %(group_id)s, topic_id, partition_id, next_offset, next_position, passed FROM beginnings
ON CONFLICT (group_id, topic_id, partition_id) DO NOTHING
RETURNING next_offset
