-- Where the last partition of a table ends; null if it has only the default one.
SELECT max(substring(pg_get_expr(child.relpartbound, child.oid) FROM $$TO \('(\d+)'\)$$)::bigint)
FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = %s::regclass
