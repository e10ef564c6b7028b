-- A table's columns, and those of its primary key, by a name that is quoted as in any statement; null if there is none.
SELECT to_regclass(%(table)s)::oid,
       ARRAY(SELECT attname::text FROM pg_attribute
             WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum),
       ARRAY(SELECT attname::text FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
             WHERE indrelid = to_regclass(%(table)s) AND indisprimary ORDER BY array_position(indkey::smallint[], attnum))
