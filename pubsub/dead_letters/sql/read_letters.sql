-- Failed events, in the order that is asked for, as the entries of the log are read.
SELECT 0, c_offset, true, false, {columns}
FROM dead_letter_queue AS letter
WHERE id = ANY (%(ids)s::bigint[])
ORDER BY array_position(%(ids)s::bigint[], id)
