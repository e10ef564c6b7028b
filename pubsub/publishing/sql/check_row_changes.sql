-- What a trigger would select, as a view that is never committed: making it finds what the search path of the trigger does
-- not have, and the database records what it uses. Variables that the trigger has are columns of the same names here.
CREATE VIEW {view} AS
WITH new_rows AS (SELECT * FROM {table}), old_rows AS (SELECT * FROM {table})
SELECT change.*
FROM (
    SELECT ''::name AS tg_name, ''::text AS tg_when, ''::text AS tg_level, ''::text AS tg_op, 0::oid AS tg_relid,
           ''::name AS tg_table_name, ''::name AS tg_table_schema, 0 AS tg_nargs, ARRAY[]::text[] AS tg_argv
) AS variables
CROSS JOIN LATERAL (
    {changes}
) AS change
