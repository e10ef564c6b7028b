-- Whether the transaction that a row's xmax names was aborted.
--
-- An xmax is the short form of a transaction id; the long one is the greatest that ends like it and is not in the future.
CREATE FUNCTION pubsub_was_aborted_v1(short xid) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    epoch CONSTANT bigint := 4294967296;
    next_xid CONSTANT bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    number bigint := next_xid / epoch * epoch + short::text::bigint;
BEGIN
    IF short::text = '0' THEN
        RETURN false;
    END IF;
    IF number >= next_xid THEN
        number := number - epoch;
    END IF;
    RETURN number > 0 AND coalesce(pg_xact_status(number::text::xid8) = 'aborted', false);
END
$$;
