-- Notes that dead letters were handled after all, each at the attempt that stands beside it.
UPDATE dead_letter_queue AS letter
SET state = 'resolved', attempts = handled.attempt, next_attempt_at = NULL, updated_at = clock_timestamp()
FROM unnest(%(ids)s::bigint[], %(attempts)s::integer[]) AS handled (id, attempt)
WHERE letter.id = handled.id
