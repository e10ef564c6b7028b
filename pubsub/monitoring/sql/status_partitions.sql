-- Every cursor, in order: where it stands, and how far it is behind. An event that is published and has no offset yet waits
-- in the partition that it will be numbered into; these are counted up to a limit. A cursor that has passed everything
-- waits for nothing, though events for other groups may lie before it.
WITH state AS (
    SELECT pg_snapshot_xmax(seen) AS xmax, ARRAY(SELECT pg_snapshot_xip(seen)) AS xip FROM log_sequencer WHERE id = 1
), fresh AS (
    (SELECT topic_id, coalesce(key, host_id, transaction_id::text) AS key, created_at FROM outbox_message_t
     WHERE xid >= (SELECT xmax FROM state) ORDER BY xid LIMIT %(limit)s)
    UNION ALL
    (SELECT topic_id, coalesce(key, host_id, transaction_id::text), created_at FROM outbox_message_t
     WHERE xid = ANY ((SELECT xip FROM state)::xid8[]) LIMIT %(limit)s)
), unnumbered AS (
    SELECT fresh.topic_id, (abs(hashtext(fresh.key)::bigint) %% topic.total_partitions)::integer AS partition_id,
           count(*) AS events, min(fresh.created_at) AS since
    FROM fresh JOIN outbox_topics AS topic ON topic.id = fresh.topic_id
    GROUP BY 1, 2
)
SELECT cursor.topic, cursor.group_id, cursor.partition_id, cursor.next_offset, cursor.lag, cursor.updated_at,
       coalesce(unnumbered.events, 0) AS unnumbered,
       least(CASE WHEN cursor.lag > 0 THEN cursor.waiting_since END, unnumbered.since) AS waiting_since
FROM consumer_lag_v AS cursor
LEFT JOIN unnumbered ON unnumbered.topic_id = cursor.topic_id AND unnumbered.partition_id = cursor.partition_id
ORDER BY cursor.topic, cursor.group_id, cursor.partition_id
