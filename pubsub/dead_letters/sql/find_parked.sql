-- Which groups let events of which topics wait behind failed ones.
SELECT DISTINCT group_id, topic_id FROM dead_letter_queue WHERE state = 'parked'
