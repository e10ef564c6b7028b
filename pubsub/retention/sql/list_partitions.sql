-- The ordinary partitions of a table, in order: name, bounds, and bytes with all indexes.
SELECT child.relname::text, (bounds.parts)[1]::bigint AS lower, (bounds.parts)[2]::bigint,
       pg_total_relation_size(child.oid)
FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
CROSS JOIN regexp_match(pg_get_expr(child.relpartbound, child.oid), $$FROM \('(\d+)'\) TO \('(\d+)'\)$$) AS bounds (parts)
WHERE inhparent = %s::regclass AND bounds.parts IS NOT NULL
ORDER BY lower
