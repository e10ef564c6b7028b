-- Publishes events in the caller's transaction: a JSON array of objects with the columns of a message. Returns whether
-- the leader waits for a hint after the commit.
--
-- While it waits it holds this lock exclusively (see pubsub/db/locks.py). A function, so that its plan is kept for the
-- session: with many segments planning costs as much as inserting.
CREATE FUNCTION pubsub_publish_v1(events jsonb) RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO outbox_message_t (event_id, topic_id, type, key, host_id, user_id, to_group, payload, metadata)
    SELECT
        event.event_id, event.topic_id, coalesce(event.type, ''), event.key, event.host_id, event.user_id,
        event.to_group, coalesce(event.payload, 'null'), coalesce(event.metadata, '{}')
    FROM jsonb_to_recordset(events) AS event(
        event_id uuid, topic_id integer, type text, key text, host_id text, user_id text, to_group text,
        payload jsonb, metadata jsonb
    );
    RETURN CASE WHEN pg_try_advisory_lock_shared(x'70756273'::integer, 2)
                THEN NOT pg_advisory_unlock_shared(x'70756273'::integer, 2) ELSE true END;
END
$$;
