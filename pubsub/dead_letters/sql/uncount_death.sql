-- Takes back what was noted in case that the worker dies of an attempt: neither has it died, nor is the event to blame.
-- The attempt is due again, and the last failure is again the one before.
WITH undone AS (
    UPDATE dead_letter_queue AS letter
    SET attempts = %(attempts)s - 1, state = 'retrying', next_attempt_at = clock_timestamp(),
        updated_at = clock_timestamp(), exception_class = coalesce(before.exception_class, ''),
        exception_message = coalesce(before.exception_message, ''), traceback = coalesce(before.traceback, '')
    FROM (SELECT) AS one LEFT JOIN LATERAL (
        SELECT * FROM dead_letter_attempts
        WHERE letter_id = ANY (%(ids)s) AND attempt < %(attempts)s ORDER BY id DESC LIMIT 1
    ) AS before ON true
    WHERE letter.id = ANY (%(ids)s) AND letter.attempts = %(attempts)s AND letter.state IN ('retrying', 'dead')
    RETURNING letter.id
)
DELETE FROM dead_letter_attempts WHERE letter_id IN (SELECT id FROM undone) AND attempt = %(attempts)s
