-- Removes dead letters that were resolved or discarded long ago, a limited number at a time, with their attempts. Those
-- that still wait for something stay, however old they are. Returns how many dead letters were removed.
WITH finished AS (
    SELECT id FROM dead_letter_queue
    WHERE state IN ('resolved', 'discarded') AND updated_at < clock_timestamp() - make_interval(secs => %(older_s)s)
    ORDER BY updated_at LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), attempts AS (
    DELETE FROM dead_letter_attempts WHERE letter_id IN (SELECT id FROM finished)
)
DELETE FROM dead_letter_queue WHERE id IN (SELECT id FROM finished)
