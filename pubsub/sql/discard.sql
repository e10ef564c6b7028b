-- Gives dead letters up, with all others of their transactions in the same group. Those in any other state stay.
UPDATE dead_letter_queue AS letter
SET state = 'discarded', next_attempt_at = NULL, updated_at = clock_timestamp()
FROM (
    SELECT DISTINCT group_id, topic_id, partition_id, transaction_id FROM dead_letter_queue WHERE id = ANY (%(ids)s)
) AS chosen
WHERE letter.state IN ('dead', 'retrying')
  AND (letter.group_id, letter.topic_id, letter.partition_id, letter.transaction_id)
    = (chosen.group_id, chosen.topic_id, chosen.partition_id, chosen.transaction_id)
