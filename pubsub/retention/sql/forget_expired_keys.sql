-- Removes dedup keys whose window is over, a limited number at a time. A key that a publisher is using again stays.
DELETE FROM outbox_dedup_key
WHERE (topic_id, dedup_key) IN (
    SELECT topic_id, dedup_key FROM outbox_dedup_key
    WHERE expires_at <= statement_timestamp()
    ORDER BY expires_at LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
