-- Notes how far each topic and each group on it has come, where that has changed since the last time: an idle system
-- writes nothing. Harmless to run twice at once or too early. A topic that somebody is removing is left out.
INSERT INTO outbox_samples (topic_id, group_id, tip, lag, behind_s)
SELECT course.topic_id, course.group_id, course.tip, course.lag, course.behind_s
FROM (
    SELECT topic_id, '' AS group_id, next_offset - 1 AS tip, 0 AS lag, 0.0 AS behind_s FROM log_counter
    UNION ALL
    SELECT topic_id, group_id, max(tip), sum(lag)::bigint,
           coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(waiting_since) FILTER (WHERE lag > 0))), 0)
    FROM consumer_lag_v GROUP BY topic_id, group_id
) AS course
JOIN outbox_topics AS topic ON topic.id = course.topic_id
LEFT JOIN LATERAL (
    SELECT tip, lag, taken_at FROM outbox_samples AS sample
    WHERE sample.topic_id = course.topic_id AND sample.group_id = course.group_id
    ORDER BY taken_at DESC LIMIT 1
) AS last ON true
WHERE last.taken_at IS NULL
   OR (last.tip, last.lag) <> (course.tip, course.lag)
      AND last.taken_at <= clock_timestamp() - make_interval(secs => %(at_least_s)s)
FOR KEY SHARE OF topic SKIP LOCKED
