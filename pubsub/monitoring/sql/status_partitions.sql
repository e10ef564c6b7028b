-- Every cursor, in order: where it stands, and how far it is behind.
SELECT topic, group_id, partition_id, next_offset, lag, waiting_since, updated_at
FROM consumer_lag_v ORDER BY topic, group_id, partition_id
