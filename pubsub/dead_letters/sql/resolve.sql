-- Notes that dead letters were handled after all, each at the attempt that stands beside it; forgets what was noted in
-- case that the worker dies.
WITH resolved AS (
    UPDATE dead_letter_queue AS letter
    SET state = 'resolved', attempts = handled.attempt, next_attempt_at = NULL, updated_at = clock_timestamp()
    FROM unnest(%(ids)s::bigint[], %(attempts)s::integer[]) AS handled (id, attempt)
    WHERE letter.id = handled.id
    RETURNING letter.id, letter.attempts
)
DELETE FROM dead_letter_attempts AS noted USING resolved
WHERE noted.letter_id = resolved.id AND noted.attempt = resolved.attempts
