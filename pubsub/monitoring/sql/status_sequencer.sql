-- The state of the sequencer: which process leads, since when a message has been waiting for its offset, whether the
-- database comes from another cluster, and since when a delayed message has been overdue; how many rows have a transaction
-- id that is still to come, up to a limit; and which tables have rows outside of their segments, in the default one. One
-- index step for each.
WITH segment AS MATERIALIZED (
    SELECT inhparent, (bounds.parts)[1]::bigint AS lower, (bounds.parts)[2]::bigint AS upper
    FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
    CROSS JOIN regexp_match(pg_get_expr(child.relpartbound, child.oid), $$FROM \('(\d+)'\) TO \('(\d+)'\)$$)
               AS bounds (parts)
    WHERE bounds.parts IS NOT NULL AND inhparent IN ('outbox_message_t'::regclass, 'log_entry'::regclass)
), messages AS (
    SELECT * FROM segment WHERE inhparent = 'outbox_message_t'::regclass
), entries AS (
    SELECT * FROM segment WHERE inhparent = 'log_entry'::regclass
)
SELECT sequencer.next_position - 1 AS last_position,
       sequencer.system_identifier IS DISTINCT FROM (SELECT system_identifier FROM pg_control_system())
           OR pg_snapshot_xmax(sequencer.seen) > pg_snapshot_xmax(pg_current_snapshot()) AS is_foreign,
       leader.pid AS leader_pid, coalesce(host(leader.client_addr), '') AS leader_client,
       greatest(leader.query_start, leader.state_change) AS leader_seen_at,
       least(
           (SELECT created_at FROM outbox_message_t
            WHERE xid >= pg_snapshot_xmax(sequencer.seen) AND xid < pg_snapshot_xmax(pg_current_snapshot())
            ORDER BY xid LIMIT 1),
           (SELECT min(created_at) FROM outbox_message_t
            WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(sequencer.seen))))
       ) AS waiting_since,
       (SELECT deliver_at FROM outbox_delayed_message WHERE deliver_at < clock_timestamp()
        ORDER BY deliver_at LIMIT 1) AS overdue_since,
       (SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('outbox_message_t') WHERE isleaf)
       + (SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('log_entry') WHERE isleaf) AS bytes,
       (SELECT count(*) FROM (
            SELECT FROM outbox_message_t WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())
            ORDER BY xid LIMIT %(limit)s
        ) AS ahead) AS xids_to_come,
       array_remove(ARRAY[
           CASE WHEN EXISTS (SELECT FROM outbox_message_t WHERE id < (SELECT min(lower) FROM messages))
                  OR EXISTS (SELECT FROM outbox_message_t WHERE id >= (SELECT max(upper) FROM messages))
                THEN 'outbox_message_t' END,
           CASE WHEN EXISTS (SELECT FROM log_entry WHERE position < (SELECT min(lower) FROM entries))
                  OR EXISTS (SELECT FROM log_entry WHERE position >= (SELECT max(upper) FROM entries))
                THEN 'log_entry' END
       ], NULL) AS overflowing,
       EXISTS (
           SELECT FROM log_segments AS segment LEFT JOIN outbox_topics AS topic ON topic.id = segment.topic_id
           GROUP BY segment.lower
           HAVING max(filled_at + least(coalesce(topic.retention, '0'), '1000 years')) < clock_timestamp()
       ) AS has_expired,
       clock_timestamp() AS taken_at
FROM log_sequencer AS sequencer
LEFT JOIN pg_stat_activity AS leader ON leader.pid = (
    SELECT pid FROM pg_locks
    WHERE locktype = 'advisory' AND classid = %(family)s AND objid = 1 AND objsubid = 2 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    LIMIT 1
)
WHERE sequencer.id = 1
