-- How many events of how many transactions change_state.sql would change now, by group and topic. Begins with
-- chosen_letters.sql. Reads all that was chosen, so it is asked where an operator is about to act, and nowhere else.
, affected AS (
    SELECT letter.group_id, letter.topic_id, letter.transaction_id, count(*) AS events, max(letter.id) AS last_id
    FROM dead_letter_queue AS letter JOIN unit USING (group_id, topic_id, partition_id, transaction_id)
    WHERE letter.state = ANY (%(states)s::text[])
      AND NOT (letter.state = %(becomes)s::text AND letter.next_attempt_at <= clock_timestamp())
    GROUP BY letter.group_id, letter.topic_id, letter.transaction_id
)
SELECT group_id, topic_id, sum(events)::bigint, count(*), (SELECT count(*) FROM chosen), (SELECT max(id) FROM chosen)
FROM affected
GROUP BY group_id, topic_id
ORDER BY group_id, topic_id
