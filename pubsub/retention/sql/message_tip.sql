-- The id that was last given to a message; null if none was.
SELECT last_value
FROM pg_sequences
JOIN pg_class ON pg_class.oid = pg_get_serial_sequence('outbox_message_t', 'id')::regclass
JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE schemaname = nspname AND sequencename = relname
