-- Parks failed events that are due while an earlier event of one of their keys waits, with the rest of their
-- transactions: an operator may replay what comes later first, and a group may park keys only since. Returns their keys,
-- and the offset of the first one of each. Each step is a subquery of its own (see unpark.sql).
WITH due AS MATERIALIZED (
    SELECT DISTINCT transaction_id
    FROM (
        SELECT transaction_id FROM dead_letter_queue
        WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
          AND state = 'retrying' AND next_attempt_at <= statement_timestamp()
        ORDER BY next_attempt_at, c_offset LIMIT %(limit)s
    ) AS first
), siblings AS MATERIALIZED (
    SELECT letter.*
    FROM due
    CROSS JOIN LATERAL (
        SELECT id, transaction_id, coalesce(key, host_id) AS key, c_offset FROM dead_letter_queue
        WHERE transaction_id = due.transaction_id AND group_id || '' = %(group_id)s AND topic_id + 0 = %(topic_id)s
          AND partition_id = %(partition_id)s
        OFFSET 0
    ) AS letter
), waiting AS MATERIALIZED (
    SELECT DISTINCT sibling.transaction_id
    FROM siblings AS sibling
    CROSS JOIN LATERAL (
        SELECT FROM dead_letter_queue AS earlier
        WHERE coalesce(earlier.key, earlier.host_id) = sibling.key AND earlier.group_id = %(group_id)s
          AND earlier.topic_id = %(topic_id)s AND earlier.c_offset < sibling.c_offset
          AND earlier.transaction_id <> sibling.transaction_id AND earlier.state IN ('retrying', 'dead', 'parked')
        ORDER BY earlier.c_offset LIMIT 1
    ) AS earlier
), locked AS MATERIALIZED (
    SELECT id FROM dead_letter_queue
    WHERE id = ANY (ARRAY(SELECT id FROM siblings JOIN waiting USING (transaction_id))) AND state || '' = 'retrying'
    ORDER BY id
    FOR UPDATE
), parked AS (
    UPDATE dead_letter_queue AS letter
    SET state = 'parked', next_attempt_at = NULL, updated_at = clock_timestamp()
    FROM locked WHERE letter.id = locked.id
    RETURNING coalesce(letter.key, letter.host_id) AS key, letter.c_offset
)
SELECT key, min(c_offset) FROM parked WHERE key IS NOT NULL GROUP BY key
