-- A snapshot in which the calling transaction counts as one that is still going on. Its own snapshots count it as over,
-- but it may publish yet.
CREATE FUNCTION pubsub_unfinished_v1(present pg_snapshot) RETURNS pg_snapshot
LANGUAGE sql VOLATILE
AS $$
    SELECT format('%s:%s:%s', LEAST(pg_snapshot_xmin(present), mine), pg_snapshot_xmax(present),
                  (SELECT string_agg(xid::text, ',' ORDER BY xid)
                   FROM (SELECT pg_snapshot_xip(present) AS xid
                         UNION SELECT mine WHERE mine < pg_snapshot_xmax(present)) AS unfinished))::pg_snapshot
    FROM (SELECT pg_current_xact_id() AS mine) AS caller
$$;
