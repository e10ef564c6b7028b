-- The cursor of each group in each partition, and how far behind it is.
SELECT group_id, topic, partition_id, status, next_offset, tip, lag, waiting_since, updated_at FROM consumer_lag_v
