-- Notes that dead letters were handled after all; forgets what was noted in case that the worker dies.
WITH resolved AS (
    UPDATE dead_letter_queue
    SET state = 'resolved', attempts = %(attempts)s, next_attempt_at = NULL, updated_at = clock_timestamp()
    WHERE id = ANY (%(ids)s)
    RETURNING id
)
DELETE FROM dead_letter_attempts WHERE letter_id IN (SELECT id FROM resolved) AND attempt = %(attempts)s
