-- Notes another failed attempt of a transaction's dead letters, and when the next one is due, if any. What was noted
-- before the attempt, in case the worker dies of it, is replaced.
WITH failed AS (
    UPDATE dead_letter_queue
    SET attempts = %(attempts)s, handler = %(handler)s, exception_class = %(exception_class)s,
        exception_message = %(exception_message)s, traceback = %(traceback)s, updated_at = clock_timestamp(),
        state = %(state)s, next_attempt_at = clock_timestamp() + make_interval(secs => %(delay)s)
    WHERE id = ANY (%(ids)s)
    RETURNING id, c_offset
), replaced AS (
    DELETE FROM dead_letter_attempts WHERE letter_id IN (SELECT id FROM failed) AND attempt = %(attempts)s
)
INSERT INTO dead_letter_attempts (letter_id, attempt, handler, exception_class, exception_message, traceback)
SELECT id, %(attempts)s, %(handler)s, %(exception_class)s, %(exception_message)s, %(traceback)s
FROM failed ORDER BY c_offset LIMIT 1
