-- The partitions of the log that are full, and whose contents have not been noted yet.
SELECT child.relname::text, (bounds.parts)[1]::bigint AS lower, (bounds.parts)[2]::bigint
FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
CROSS JOIN regexp_match(pg_get_expr(child.relpartbound, child.oid), $$FROM \('(\d+)'\) TO \('(\d+)'\)$$) AS bounds (parts)
WHERE inhparent = 'log_entry'::regclass AND bounds.parts IS NOT NULL
  AND (bounds.parts)[2]::bigint <= (SELECT next_position FROM log_sequencer WHERE id = 1)
  AND NOT EXISTS (SELECT FROM log_segments WHERE log_segments.lower = (bounds.parts)[1]::bigint)
ORDER BY lower
