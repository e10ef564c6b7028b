-- Notes that dead letters were handled after all, each at the attempt that stands beside it. What was noted in case that
-- the worker dies is taken back: the last failure is again the one before. Where there is such a note, the dead letters
-- are those of one transaction, and its attempts are kept with the first of them.
WITH noted AS (
    DELETE FROM dead_letter_attempts AS noted
    USING unnest(%(ids)s::bigint[], %(attempts)s::integer[]) AS handled (id, attempt)
    WHERE noted.letter_id = handled.id AND noted.attempt = handled.attempt
    RETURNING noted.attempt
), before AS (
    SELECT true AS is_other, coalesce(failed.exception_class, '') AS exception_class,
           coalesce(failed.exception_message, '') AS exception_message, coalesce(failed.traceback, '') AS traceback
    FROM noted LEFT JOIN LATERAL (
        SELECT * FROM dead_letter_attempts
        WHERE letter_id = ANY (%(ids)s) AND attempt < noted.attempt ORDER BY id DESC LIMIT 1
    ) AS failed ON true
)
UPDATE dead_letter_queue AS letter
SET state = 'resolved', attempts = handled.attempt, next_attempt_at = NULL, updated_at = clock_timestamp(),
    exception_class = CASE WHEN is_other THEN before.exception_class ELSE letter.exception_class END,
    exception_message = CASE WHEN is_other THEN before.exception_message ELSE letter.exception_message END,
    traceback = CASE WHEN is_other THEN before.traceback ELSE letter.traceback END
FROM unnest(%(ids)s::bigint[], %(attempts)s::integer[]) AS handled (id, attempt)
LEFT JOIN before ON true
WHERE letter.id = handled.id
