-- The same snapshot, but with the calling transaction still in progress.
--
-- Its own snapshots count it as over, but it may publish yet.
CREATE FUNCTION pubsub_unfinished_v1(present pg_snapshot) RETURNS pg_snapshot
LANGUAGE plpgsql
AS $$
DECLARE
    mine xid8 := pg_current_xact_id();
BEGIN
    IF mine >= pg_snapshot_xmax(present) THEN
        RETURN present;
    END IF;
    RETURN format('%s:%s:%s', LEAST(pg_snapshot_xmin(present), mine), pg_snapshot_xmax(present),
                  (SELECT string_agg(xid::text, ',' ORDER BY xid)
                   FROM (SELECT pg_snapshot_xip(present) AS xid UNION SELECT mine) AS unfinished));
END
$$;
