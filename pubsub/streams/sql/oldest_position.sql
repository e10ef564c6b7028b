-- The position from which on the log is whole: where its first segment begins. Those before have been dropped.
SELECT coalesce(min(substring(pg_get_expr(child.relpartbound, child.oid) FROM 'FROM \(''(\d+)''\)')::bigint), 1)
FROM pg_inherits
JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = 'log_entry'::regclass
