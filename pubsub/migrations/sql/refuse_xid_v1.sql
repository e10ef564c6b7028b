-- Refuses an event whose xid its publisher has given: the sequencer would number it never, or at another time.
--
-- What copies events from elsewhere leaves xid out. `loaddata` keeps it, and says so by the setting; a restore of the data
-- alone disables triggers.
CREATE FUNCTION pubsub_refuse_xid_v1() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF current_setting('pubsub.loading', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'xid must be the publishing transaction, %, not %', pg_current_xact_id(), NEW.xid
            USING ERRCODE = 'check_violation', HINT = 'Leave the column xid out: the database fills it.';
    END IF;
    RETURN NULL;
END
$$;
