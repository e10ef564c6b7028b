-- Quoted: where the migration creates what has no schema, where the outbox is, and a table with its schema. Of a table
-- that is not there yet, as where SQL is only shown, the name is null, and of the outbox it is the first.
SELECT quote_ident(current_schema()),
       coalesce(
           (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('outbox_message_t')),
           quote_ident(current_schema())
       ),
       (SELECT format('%%s.%%I', relnamespace::regnamespace, relname) FROM pg_class WHERE oid = to_regclass(%(table)s))
