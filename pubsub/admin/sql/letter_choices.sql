-- What types, exceptions and hosts there are among the dead letters, some of each, in order: each step looks up the next
-- value in an index, so that a million letters of three types cost three steps. Hosts may be tenants, and many.
WITH RECURSIVE types AS (
    (SELECT type AS value, 1 AS nth FROM dead_letter_queue ORDER BY type LIMIT 1)
    UNION ALL
    SELECT (SELECT type FROM dead_letter_queue WHERE type > types.value ORDER BY type LIMIT 1), nth + 1
    FROM types WHERE types.value IS NOT NULL AND nth < %(most)s
), exceptions AS (
    (SELECT exception_class AS value, 1 AS nth FROM dead_letter_queue ORDER BY exception_class LIMIT 1)
    UNION ALL
    SELECT (SELECT exception_class FROM dead_letter_queue
            WHERE exception_class > exceptions.value ORDER BY exception_class LIMIT 1), nth + 1
    FROM exceptions WHERE exceptions.value IS NOT NULL AND nth < %(most)s
), hosts AS (
    (SELECT host_id AS value, 1 AS nth FROM dead_letter_queue WHERE host_id IS NOT NULL ORDER BY host_id LIMIT 1)
    UNION ALL
    SELECT (SELECT host_id FROM dead_letter_queue
            WHERE host_id IS NOT NULL AND host_id > hosts.value ORDER BY host_id LIMIT 1), nth + 1
    FROM hosts WHERE hosts.value IS NOT NULL AND nth < %(most)s
)
SELECT 'type', value FROM types WHERE value <> ''
UNION ALL SELECT 'exception', value FROM exceptions WHERE value <> ''
UNION ALL SELECT 'host', value FROM hosts WHERE value <> ''
