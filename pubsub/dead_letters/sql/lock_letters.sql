-- Failed events that are being tried, locked, unless an operator has discarded them meanwhile.
SELECT id, attempts, coalesce(key, host_id)
FROM dead_letter_queue
WHERE id = ANY (%(ids)s) AND state IN ('retrying', 'dead')
ORDER BY c_offset
FOR UPDATE
