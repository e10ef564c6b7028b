-- The samples since a time of the given series: a topic, and a group on it or '' for its own. Each begins with the last
-- sample before that time, which tells the values at its beginning.
SELECT series.topic_id, series.group_id, sample.taken_at, sample.tip, sample.lag, sample.behind_s, sample.after_gap
FROM unnest(%(topic_ids)s::integer[], %(groups)s::text[]) AS series (topic_id, group_id)
CROSS JOIN LATERAL (
    (SELECT taken_at, tip, lag, behind_s, after_gap FROM outbox_samples
     WHERE topic_id = series.topic_id AND group_id = series.group_id AND taken_at < %(since)s
     ORDER BY taken_at DESC LIMIT 1)
    UNION ALL
    (SELECT taken_at, tip, lag, behind_s, after_gap FROM outbox_samples
     WHERE topic_id = series.topic_id AND group_id = series.group_id AND taken_at >= %(since)s)
) AS sample
ORDER BY series.topic_id, series.group_id, sample.taken_at
