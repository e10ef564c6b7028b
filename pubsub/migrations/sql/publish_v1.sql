-- Publishes one event in the caller's transaction and returns whether the leader waits for a hint after the commit.
--
-- While it waits it holds this lock exclusively (see pubsub/db/locks.py). A function, so that its plan is kept for the
-- session: with many segments planning costs as much as inserting.
CREATE FUNCTION pubsub_publish_v1(
    event_id uuid, topic_id integer, type text, key text, host_id text, user_id text, to_group text, payload jsonb,
    metadata jsonb
) RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO outbox_message_t (event_id, topic_id, type, key, host_id, user_id, to_group, payload, metadata)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9);
    RETURN CASE WHEN pg_try_advisory_lock_shared(x'70756273'::integer, 2)
                THEN NOT pg_advisory_unlock_shared(x'70756273'::integer, 2) ELSE true END;
END
$$;
