-- Between which numbers the rows of a default partition are said to be, and whether that has been proved; no row if
-- nothing is said. It is said while the partition is being turned into an ordinary one.
SELECT substring(definition FROM $$>= '?(\d+)$$)::bigint, substring(definition FROM $$< '?(\d+)$$)::bigint, convalidated
FROM pg_constraint, LATERAL pg_get_constraintdef(oid) AS definition
WHERE conrelid = %s::regclass AND conname = 'bounds'
