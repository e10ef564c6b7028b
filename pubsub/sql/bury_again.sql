-- Notes another failed attempt of a transaction's dead letters, and when the next one is due, if any.
UPDATE dead_letter_queue
SET attempts = attempts + 1, handler = %(handler)s, exception_class = %(exception_class)s,
    exception_message = %(exception_message)s, traceback = %(traceback)s, updated_at = clock_timestamp(),
    state = CASE WHEN %(delay)s::integer IS NULL THEN 'dead' ELSE 'retrying' END,
    next_attempt_at = clock_timestamp() + make_interval(secs => %(delay)s)
WHERE id = ANY (%(ids)s)
