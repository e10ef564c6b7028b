-- What the sequencer has left undone, if anything: the oldest transaction that is committed, has published, and has no
-- offset; or `foreign`, where the database was restored into another cluster. The same answer for long means
-- that the sequencer does not run. One step into an index, given that sequential scans are off.
SELECT CASE
    WHEN sequencer.system_identifier IS DISTINCT FROM (SELECT system_identifier FROM pg_control_system())
         OR pg_snapshot_xmax(sequencer.seen) > pg_snapshot_xmax(pg_current_snapshot()) THEN 'foreign'
    ELSE coalesce(
        (SELECT xid::text FROM outbox_message_t
         WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(sequencer.seen))) ORDER BY xid LIMIT 1),
        (SELECT xid::text FROM outbox_message_t
         WHERE xid >= pg_snapshot_xmax(sequencer.seen) AND xid < pg_snapshot_xmax(pg_current_snapshot())
         ORDER BY xid LIMIT 1)
    ) END
FROM log_sequencer AS sequencer WHERE id = 1
