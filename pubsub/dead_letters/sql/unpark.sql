-- Lets parked events of a group go, with the rest of their transactions, where nothing that waits comes before them by
-- any of their keys. Of each key only the first one can be that.
WITH next_of_key AS (
    SELECT DISTINCT ON (coalesce(key, host_id)) transaction_id, partition_id
    FROM dead_letter_queue
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND state = 'parked'
      AND (%(keys)s::text[] IS NULL OR coalesce(key, host_id) = ANY (%(keys)s::text[]))
    ORDER BY coalesce(key, host_id), c_offset
)
UPDATE dead_letter_queue AS letter
SET state = 'retrying', next_attempt_at = clock_timestamp(), updated_at = clock_timestamp()
FROM (SELECT DISTINCT transaction_id, partition_id FROM next_of_key) AS candidate
WHERE letter.group_id = %(group_id)s AND letter.topic_id = %(topic_id)s AND letter.state = 'parked'
  AND letter.transaction_id = candidate.transaction_id AND letter.partition_id = candidate.partition_id
  AND NOT EXISTS (
      SELECT FROM dead_letter_queue AS sibling JOIN dead_letter_queue AS earlier
        ON coalesce(earlier.key, earlier.host_id) = coalesce(sibling.key, sibling.host_id)
       AND earlier.group_id = sibling.group_id AND earlier.topic_id = sibling.topic_id
       AND earlier.c_offset < sibling.c_offset AND earlier.transaction_id <> sibling.transaction_id
      WHERE sibling.group_id = %(group_id)s AND sibling.topic_id = %(topic_id)s
        AND sibling.transaction_id = candidate.transaction_id AND sibling.partition_id = candidate.partition_id
        AND earlier.state IN ('retrying', 'dead', 'parked')
  )
