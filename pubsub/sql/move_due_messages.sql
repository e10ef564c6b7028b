-- Moves delayed messages that are due to the outbox, where they are numbered like any other. Several processes may do
-- so at once. A message keeps its id, its time of publication and its transaction.
WITH due AS (
    DELETE FROM outbox_delayed_message
    WHERE id IN (
        SELECT id FROM outbox_delayed_message
        WHERE deliver_at <= statement_timestamp()
        ORDER BY deliver_at, id LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    )
    RETURNING *
)
INSERT INTO outbox_message_t (event_id, transaction_id, created_at, topic_id, type, key, host_id, user_id, to_group,
                              payload, metadata)
SELECT event_id, transaction_id, created_at, topic_id, type, key, host_id, user_id, to_group, payload, metadata
FROM due ORDER BY deliver_at, id
