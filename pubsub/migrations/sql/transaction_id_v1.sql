-- One uuid for all rows of one top-level transaction, savepoints included, and for no other transaction ever.
--
-- It is the server's start and the transaction's number, so that a restored copy, which counts from the start, cannot repeat one.
CREATE FUNCTION pubsub_transaction_id_v1() RETURNS uuid
LANGUAGE sql STABLE PARALLEL RESTRICTED
AS $$
    SELECT encode(
        timestamptz_send(pg_postmaster_start_time()) || xid8send(pg_current_xact_id()), 'hex'
    )::uuid
$$;
