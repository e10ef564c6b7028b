-- The event that was first published with a key, if the key is still remembered. Takes no lock.
SELECT event_id FROM outbox_dedup_key
WHERE topic_id = %(topic_id)s AND dedup_key = %(dedup_key)s AND expires_at > clock_timestamp()
