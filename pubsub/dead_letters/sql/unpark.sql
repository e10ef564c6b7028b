-- Lets parked events of these keys go, with the rest of their transactions, where nothing that waits comes before them
-- by any of their keys. Of each key only the first one can be that.
--
-- Where a row of failures grows quickly the table is not analysed yet. So each step is a subquery of its own, by the one
-- index that reads a few rows however many wait: of a transaction only its id is compared as it is, for the others indexes
-- would be at hand.
WITH next_of_key AS MATERIALIZED (
    SELECT DISTINCT first.transaction_id, first.partition_id
    FROM unnest(%(keys)s::text[]) AS asked (key)
    CROSS JOIN LATERAL (
        SELECT transaction_id, partition_id FROM dead_letter_queue
        WHERE coalesce(key, host_id) = asked.key AND group_id = %(group_id)s AND topic_id = %(topic_id)s
          AND state = 'parked'
        ORDER BY c_offset LIMIT 1
    ) AS first
), siblings AS MATERIALIZED (
    SELECT candidate.transaction_id, candidate.partition_id, letter.key, letter.c_offset
    FROM next_of_key AS candidate
    CROSS JOIN LATERAL (
        SELECT coalesce(key, host_id) AS key, c_offset FROM dead_letter_queue
        WHERE transaction_id = candidate.transaction_id AND group_id || '' = %(group_id)s
          AND topic_id + 0 = %(topic_id)s AND partition_id = candidate.partition_id
        OFFSET 0
    ) AS letter
), waiting AS MATERIALIZED (
    SELECT sibling.transaction_id, sibling.partition_id
    FROM siblings AS sibling
    CROSS JOIN LATERAL (
        SELECT FROM dead_letter_queue AS earlier
        WHERE coalesce(earlier.key, earlier.host_id) = sibling.key AND earlier.group_id = %(group_id)s
          AND earlier.topic_id = %(topic_id)s AND earlier.c_offset < sibling.c_offset
          AND earlier.transaction_id <> sibling.transaction_id AND earlier.state IN ('retrying', 'dead', 'parked')
        ORDER BY earlier.c_offset LIMIT 1
    ) AS earlier
)
UPDATE dead_letter_queue AS letter
SET state = 'retrying', next_attempt_at = clock_timestamp(), updated_at = clock_timestamp()
FROM (
    SELECT transaction_id, partition_id FROM next_of_key EXCEPT SELECT transaction_id, partition_id FROM waiting
) AS free
WHERE letter.transaction_id = free.transaction_id AND letter.group_id || '' = %(group_id)s
  AND letter.topic_id + 0 = %(topic_id)s AND letter.partition_id = free.partition_id
  AND letter.state || '' = 'parked'
