-- The failed events of the transactions that have waited longest for their next attempt, locked: about so many, and on
-- to the end of the last transaction. Replay and discard wait for nothing and change nothing meanwhile.
--
-- Each step is a subquery of its own, by the one index that reads a few rows however many wait (see unpark.sql).
SELECT id, attempts, coalesce(key, host_id), transaction_id, c_offset, state,
       coalesce(date_part('epoch', next_attempt_at), 0), coalesce(c_offset <= (
           SELECT alone_to FROM consumer_offsets
           WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
       ), false)
FROM dead_letter_queue
WHERE id = ANY (ARRAY(
    SELECT letter.id
    FROM (
        SELECT DISTINCT transaction_id
        FROM (
            SELECT transaction_id FROM dead_letter_queue
            WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
              AND state = 'retrying' AND next_attempt_at <= statement_timestamp()
            ORDER BY next_attempt_at, c_offset LIMIT %(limit)s
        ) AS first
    ) AS due
    CROSS JOIN LATERAL (
        SELECT id FROM dead_letter_queue
        WHERE transaction_id = due.transaction_id AND group_id || '' = %(group_id)s AND topic_id + 0 = %(topic_id)s
          AND partition_id = %(partition_id)s
        OFFSET 0
    ) AS letter
)) AND state || '' = 'retrying'
ORDER BY id
FOR UPDATE
