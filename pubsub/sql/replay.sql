-- Makes dead letters due now, with all others of their transactions in the same group. Those in any other state stay.
UPDATE dead_letter_queue AS letter
SET state = 'retrying', next_attempt_at = clock_timestamp(), updated_at = clock_timestamp()
FROM (
    SELECT DISTINCT group_id, topic_id, partition_id, transaction_id FROM dead_letter_queue WHERE id = ANY (%(ids)s)
) AS chosen
WHERE letter.state = 'dead'
  AND (letter.group_id, letter.topic_id, letter.partition_id, letter.transaction_id)
    = (chosen.group_id, chosen.topic_id, chosen.partition_id, chosen.transaction_id)
