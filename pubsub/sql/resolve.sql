-- Notes that dead letters were handled after all.
UPDATE dead_letter_queue
SET state = 'resolved', attempts = attempts + 1, next_attempt_at = NULL, updated_at = clock_timestamp()
WHERE id = ANY (%(ids)s)
