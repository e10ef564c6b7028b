-- The failed events of the transaction that has waited longest for its next attempt, locked. Replay and discard wait
-- for nothing and change nothing meanwhile.
SELECT id, attempts, coalesce(key, host_id)
FROM dead_letter_queue
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s AND state = 'retrying'
  AND transaction_id = (
      SELECT transaction_id FROM dead_letter_queue
      WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
        AND state = 'retrying' AND next_attempt_at <= statement_timestamp()
      ORDER BY next_attempt_at, c_offset LIMIT 1
  )
ORDER BY c_offset
FOR UPDATE
