-- The bounds declared for the rows of a default partition, and whether they have been validated; no row if there are none.
-- They are declared while the partition is being turned into an ordinary one.
SELECT substring(definition FROM $$>= '?(\d+)$$)::bigint, substring(definition FROM $$< '?(\d+)$$)::bigint, convalidated
FROM pg_constraint, LATERAL pg_get_constraintdef(oid) AS definition
WHERE conrelid = %s::regclass AND conname = 'bounds'
