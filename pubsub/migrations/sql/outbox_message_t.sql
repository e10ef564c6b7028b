-- Published events. Insert-only: the columns of fixed width come first, so that no row is padded.
-- Partitioned by id, so that retention drops whole tables and leaves nothing to vacuum. The default segment is a safety
-- net: publishing works even where no segments have been prepared.
CREATE TABLE outbox_message_t (
    id             bigint      GENERATED ALWAYS AS IDENTITY,
    xid            xid8        NOT NULL DEFAULT pg_current_xact_id(),
    event_id       uuid        NOT NULL DEFAULT gen_random_uuid(),
    transaction_id uuid        NOT NULL DEFAULT pubsub_transaction_id_v1(),
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic_id       integer     NOT NULL DEFAULT 1,
    type           text        NOT NULL DEFAULT '',
    key            text,
    host_id        text,
    user_id        text,
    to_group       text,
    payload        jsonb       NOT NULL,
    metadata       jsonb       NOT NULL DEFAULT '{}',
    CONSTRAINT outbox_message_t_pkey PRIMARY KEY (id),
    CONSTRAINT outbox_message_t_texts_fit CHECK (
        greatest(octet_length(type), octet_length(key), octet_length(host_id), octet_length(user_id),
                 octet_length(to_group)) <= 2000
    ),
    -- Python's years, in any zone.
    CONSTRAINT outbox_message_t_times_fit CHECK (
        created_at >= '0001-01-02 00:00:00+00' AND created_at < '9999-12-31 00:00:00+00'
    )
) PARTITION BY RANGE (id);

CREATE INDEX outbox_message_t_xid ON outbox_message_t (xid);

-- AFTER, so that COPY still stores many rows at once; the function is called for what it refuses alone.
CREATE TRIGGER outbox_message_t_own_xid AFTER INSERT ON outbox_message_t
FOR EACH ROW WHEN (NEW.xid <> pg_current_xact_id()) EXECUTE FUNCTION pubsub_refuse_xid_v1();

COMMENT ON TABLE outbox_message_t IS 'Published events; insert-only, partitioned by id, retired by whole partitions';
COMMENT ON COLUMN outbox_message_t.id IS 'Insertion order, not the log''s order';
COMMENT ON COLUMN outbox_message_t.xid IS
    'The top-level transaction that published it; filled by the database, never by hand';
COMMENT ON COLUMN outbox_message_t.event_id IS
    'What the outside world knows the event by: the same through delay, retry, replay and archive';
COMMENT ON COLUMN outbox_message_t.transaction_id IS
    'One value for all events of one transaction, whichever language inserted them';
COMMENT ON COLUMN outbox_message_t.created_at IS 'When it was published, by the database''s clock';
COMMENT ON COLUMN outbox_message_t.topic_id IS
    'A row of outbox_topics (not enforced, so that publishers share no lock)';
COMMENT ON COLUMN outbox_message_t.type IS 'What happened, such as order.created';
COMMENT ON COLUMN outbox_message_t.key IS 'Events of one key keep their order; host_id if absent';
COMMENT ON COLUMN outbox_message_t.host_id IS 'The tenant';
COMMENT ON COLUMN outbox_message_t.user_id IS 'Who caused the event';
COMMENT ON COLUMN outbox_message_t.to_group IS 'Only this group handles it; null: every group';
COMMENT ON COLUMN outbox_message_t.payload IS 'The event itself';
COMMENT ON COLUMN outbox_message_t.metadata IS 'What travels with the event: trace context, correlation, schema version';
