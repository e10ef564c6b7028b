-- Which groups let events of which topics and keys wait behind failed ones.
SELECT group_id, topic_id, array_agg(DISTINCT coalesce(key, host_id))
FROM dead_letter_queue WHERE state = 'parked'
GROUP BY group_id, topic_id
