-- Makes dead letters due now. Begins with chosen_letters.sql. Those in any other state stay: it is asked under the row's
-- lock, so that of two people who press at once one replays. Locked in one order, so that neither waits for the other's.
, locked AS (
    SELECT letter.id, letter.state
    FROM dead_letter_queue AS letter JOIN unit USING (group_id, topic_id, partition_id, transaction_id)
    WHERE letter.state = ANY (%(states)s::text[])
    ORDER BY letter.id
    FOR UPDATE OF letter
)
UPDATE dead_letter_queue AS letter
SET state = 'retrying', next_attempt_at = clock_timestamp(), updated_at = clock_timestamp()
FROM locked
WHERE letter.id = locked.id
RETURNING letter.id, letter.group_id, letter.topic_id, letter.partition_id, letter.c_offset, letter.transaction_id,
          coalesce(letter.key, letter.host_id), locked.state, letter.id IN (SELECT id FROM chosen)
