-- A table's columns, and those of its primary key, by a name that is quoted as in a statement; null if there is no such table.
-- A key's index may INCLUDE columns that are not of the key; they come last.
SELECT to_regclass(%(table)s)::oid,
       ARRAY(SELECT attname::text FROM pg_attribute
             WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum),
       ARRAY(SELECT attname::text
             FROM pg_index
             CROSS JOIN LATERAL unnest(indkey::smallint[]) WITH ORDINALITY AS part (number, ordinality)
             JOIN pg_attribute ON attrelid = indrelid AND attnum = number
             WHERE indrelid = to_regclass(%(table)s) AND indisprimary AND ordinality <= indnkeyatts ORDER BY ordinality)
