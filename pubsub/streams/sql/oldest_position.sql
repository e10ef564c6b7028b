-- The position from which the log is complete: where its first segment begins. Earlier segments have been dropped.
SELECT coalesce(min(substring(pg_get_expr(child.relpartbound, child.oid) FROM 'FROM \(''(\d+)''\)')::bigint), 1)
FROM pg_inherits
JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = 'log_entry'::regclass
