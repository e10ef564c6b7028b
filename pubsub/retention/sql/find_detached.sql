-- Partitions that have been detached and not dropped yet.
SELECT child.relname::text
FROM pg_class AS child JOIN pg_class AS parent ON parent.relnamespace = child.relnamespace
WHERE parent.oid IN ('outbox_message_t'::regclass, 'log_entry'::regclass) AND NOT child.relispartition
  AND child.relkind = 'r' AND child.relname ~ ('^' || parent.relname || '_\d+_retired$')
ORDER BY child.relname
