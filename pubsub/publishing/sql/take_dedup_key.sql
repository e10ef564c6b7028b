-- Takes a key that is free or expired; no row if another event has it. Waits while another transaction is taking it.
INSERT INTO outbox_dedup_key AS held (topic_id, dedup_key, event_id, expires_at)
VALUES (%(topic_id)s, %(dedup_key)s, %(event_id)s, clock_timestamp() + make_interval(secs => %(window)s))
ON CONFLICT (topic_id, dedup_key) DO UPDATE SET event_id = excluded.event_id, expires_at = excluded.expires_at
WHERE held.expires_at <= clock_timestamp()
RETURNING event_id
