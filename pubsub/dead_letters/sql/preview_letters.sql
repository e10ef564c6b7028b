-- The dead letters that change_state.sql would change now. Begins with chosen_letters.sql; changes and locks
-- nothing.
SELECT letter.id, letter.group_id, letter.topic_id, letter.partition_id, letter.c_offset, letter.transaction_id,
       coalesce(letter.key, letter.host_id), letter.state, letter.id IN (SELECT id FROM chosen)
FROM dead_letter_queue AS letter JOIN unit USING (group_id, topic_id, partition_id, transaction_id)
WHERE letter.state = ANY (%(states)s::text[])
  AND NOT (letter.state = %(becomes)s::text AND letter.next_attempt_at <= clock_timestamp())
ORDER BY letter.id
LIMIT %(shown)s::bigint
