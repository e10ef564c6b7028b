-- Failed events, in order, as the entries of the log are read.
SELECT 0, c_offset, true, false, {columns}
FROM dead_letter_queue AS letter
WHERE id = ANY (%(ids)s)
ORDER BY c_offset
