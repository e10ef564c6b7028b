-- Which of the given groups' partitions have something to do (see pubsub_find_work_v1).
SELECT group_id, topic, topic_id, partition_id, below_position, has_new, has_due, crashed, is_leased,
       is_resting, failing_offset, failures, failing_s, is_ahead, events
FROM pubsub_find_work_v1(%(topics)s, %(groups)s, %(partitions)s, %(worker_id)s, %(family)s)
WHERE has_new OR has_due OR is_leased
