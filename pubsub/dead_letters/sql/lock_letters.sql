-- Failed events that are being tried, locked, unless an operator has discarded them meanwhile.
SELECT id, attempts, coalesce(key, host_id), transaction_id, c_offset, state,
       coalesce(date_part('epoch', next_attempt_at), 0), true
FROM dead_letter_queue
WHERE id = ANY (%(ids)s) AND state IN ('retrying', 'dead')
ORDER BY id
FOR UPDATE
