-- Takes a sample of each topic and each group on it where something has changed since the last one: an idle system writes
-- nothing. Safe to run twice at once or too early. A topic that is being removed is left out. Where the members that are
-- alive have only just joined, the change may have been at any time since the last sample: it is after a gap.
INSERT INTO outbox_samples (topic_id, group_id, tip, lag, behind_s, after_gap)
SELECT series.topic_id, series.group_id, series.tip, series.lag, series.behind_s,
       last.taken_at IS NOT NULL AND NOT EXISTS (
           SELECT FROM outbox_members AS member
           WHERE member.joined_at < greatest(last.taken_at, clock_timestamp() - interval '1 minute')
             AND member.last_heartbeat_at > clock_timestamp() - interval '2 minutes'
       )
FROM (
    SELECT topic_id, '' AS group_id, next_offset - 1 AS tip, 0 AS lag, 0.0 AS behind_s FROM log_counter
    UNION ALL
    SELECT topic_id, group_id, max(tip), sum(lag)::bigint,
           coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(waiting_since) FILTER (WHERE lag > 0))), 0)
    FROM consumer_lag_v GROUP BY topic_id, group_id
) AS series
JOIN outbox_topics AS topic ON topic.id = series.topic_id
LEFT JOIN LATERAL (
    SELECT tip, lag, taken_at FROM outbox_samples AS sample
    WHERE sample.topic_id = series.topic_id AND sample.group_id = series.group_id
    ORDER BY taken_at DESC LIMIT 1
) AS last ON true
WHERE last.taken_at IS NULL
   OR (last.tip, last.lag) <> (series.tip, series.lag)
      AND last.taken_at <= clock_timestamp() - make_interval(secs => %(at_least_s)s)
FOR KEY SHARE OF topic SKIP LOCKED
