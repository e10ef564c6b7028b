-- Makes dead letters due now, or discards them. Begins with chosen_letters.sql. Letters in any other state stay: the state
-- is checked under the row's lock, so that of two people who replay at once one does, and a letter that a worker has just
-- handled is not discarded. Locked in one order, so that neither blocks the other.
, locked AS (
    SELECT letter.id, letter.state
    FROM dead_letter_queue AS letter JOIN unit USING (group_id, topic_id, partition_id, transaction_id)
    WHERE letter.state = ANY (%(states)s::text[])
      AND NOT (letter.state = %(becomes)s::text AND letter.next_attempt_at <= clock_timestamp())
    ORDER BY letter.id
    FOR UPDATE OF letter
)
UPDATE dead_letter_queue AS letter
SET state = %(becomes)s::text, updated_at = clock_timestamp(),
    next_attempt_at = CASE WHEN %(becomes)s::text = 'retrying' THEN clock_timestamp() END
FROM locked
WHERE letter.id = locked.id
RETURNING letter.id, letter.group_id, letter.topic_id, letter.partition_id, letter.c_offset, letter.transaction_id,
          coalesce(letter.key, letter.host_id), locked.state, letter.id IN (SELECT id FROM chosen)
