-- Refuses an event whose xid its publisher has given: the sequencer would number it never, or at another time.
--
-- What copies events from elsewhere leaves xid out; a restore that keeps it disables triggers, and is then re-anchored.
CREATE FUNCTION pubsub_refuse_xid_v1() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'xid must be the publishing transaction, %, not %', pg_current_xact_id(), NEW.xid
        USING ERRCODE = 'check_violation', HINT = 'Leave the column xid out: the database fills it.';
END
$$;
