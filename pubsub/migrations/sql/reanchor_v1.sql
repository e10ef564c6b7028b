-- Forgets the transaction ids of another cluster and returns how many events are still to be numbered.
--
-- After the database has been restored or copied into another cluster, transaction ids start over and the sequencer's
-- snapshot means nothing. This waits for publishers in flight and holds new ones off meanwhile; it reads the whole log,
-- once. Events whose entries retention has dropped already are known by their ids, and never numbered again.
CREATE FUNCTION pubsub_reanchor_v1() RETURNS bigint
LANGUAGE plpgsql
SET jit = off
AS $$
DECLARE
    unnumbered bigint;
    settled bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'pubsub_reanchor_v1 was called in a % transaction', current_setting('transaction_isolation')
            USING HINT = 'Call it in a READ COMMITTED transaction: each of its statements needs a fresh snapshot.';
    END IF;
    SELECT settled_id INTO settled FROM log_sequencer WHERE id = 1 FOR UPDATE;
    LOCK TABLE outbox_message_t IN SHARE ROW EXCLUSIVE MODE;

    -- What is in the log must never look new again, whatever its id happens to be in this cluster …
    UPDATE outbox_message_t SET xid = '2'
    WHERE xid >= (SELECT pg_snapshot_xmin(pg_current_snapshot()))
      AND (id < settled OR EXISTS (SELECT FROM log_entry WHERE message_id = outbox_message_t.id));
    -- … and what is not must.
    UPDATE outbox_message_t SET xid = pg_current_xact_id()
    WHERE id >= settled AND NOT EXISTS (SELECT FROM log_entry WHERE message_id = outbox_message_t.id);
    GET DIAGNOSTICS unnumbered = ROW_COUNT;

    UPDATE log_sequencer
    SET seen = pubsub_unfinished_v1(pg_current_snapshot()), backlog = NULL,
        system_identifier = (SELECT system_identifier FROM pg_control_system())
    WHERE id = 1;
    RETURN unnumbered;
END
$$;
