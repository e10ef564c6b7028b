-- The full segments of the log, the oldest first: when the last event in each expires, and because of which topic.
-- Events of a topic that is gone have expired. Retention is capped at a thousand years, because Python has no dates much
-- later than that. Reads no log.
SELECT lower, upper, filled_at, max(filled_at + least(coalesce(topic.retention, '0'), '1000 years')) AS expires_at,
       coalesce((array_agg(topic.name ORDER BY topic.retention DESC NULLS LAST))[1], ''),
       sum(entries)::bigint, min(first_message_id) FILTER (WHERE entries > 0), coalesce(max(last_message_id), 0)
FROM log_segments LEFT JOIN outbox_topics AS topic ON topic.id = topic_id
GROUP BY lower, upper, filled_at
ORDER BY lower
