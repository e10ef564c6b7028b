-- Keeps what some keys wait for as it is until the transaction is over: the transaction that resolves it then sees who waits.
SELECT FROM dead_letter_queue
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND coalesce(key, host_id) = ANY (%(keys)s)
  AND state IN ('retrying', 'dead', 'parked')
ORDER BY id
FOR SHARE
