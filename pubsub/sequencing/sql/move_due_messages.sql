-- Moves delayed messages that are due to the outbox, where they are numbered like any other. Several processes may do so at
-- once. A message keeps its event id, its time of publication and its transaction.
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
INSERT INTO outbox_message_t (topic_id, to_group, {columns})
SELECT topic_id, to_group, {columns}
FROM due ORDER BY deliver_at, id
