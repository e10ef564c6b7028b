-- A cursor in each partition that a topic now has, for every group that has none there: after everything that is
-- numbered. The caller holds the sequencer's lock.
INSERT INTO consumer_offsets (group_id, topic_id, partition_id, next_offset, next_position, passed)
SELECT subscription.group_id, topic.id, opened.partition_id, coalesce(counter.next_offset, 1), sequencer.next_position,
       coalesce(numbered.entries, 0)
FROM outbox_topics AS topic
JOIN outbox_topic_subscriptions AS subscription ON subscription.topic_id = topic.id
CROSS JOIN generate_series(0, topic.total_partitions - 1) AS opened (partition_id)
JOIN log_sequencer AS sequencer ON sequencer.id = 1
LEFT JOIN log_counter AS counter ON counter.topic_id = topic.id
LEFT JOIN log_partition_counter AS numbered
       ON numbered.topic_id = topic.id AND numbered.partition_id = opened.partition_id
WHERE topic.id = %(topic_id)s
ON CONFLICT (group_id, topic_id, partition_id) DO NOTHING
