-- A table's columns, and those of its primary key, by a name that is quoted as in any statement; null if there is none.
-- A key's index may INCLUDE columns that are not of the key; they come last.
SELECT to_regclass(%(table)s)::oid,
       ARRAY(SELECT attname::text FROM pg_attribute
             WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum),
       ARRAY(SELECT attname::text
             FROM pg_index
             CROSS JOIN LATERAL unnest(indkey::smallint[]) WITH ORDINALITY AS part (number, place)
             JOIN pg_attribute ON attrelid = indrelid AND attnum = number
             WHERE indrelid = to_regclass(%(table)s) AND indisprimary AND place <= indnkeyatts ORDER BY place)
