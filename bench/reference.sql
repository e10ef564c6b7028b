-- The loop that most outboxes on PostgreSQL use, and the plainest table there is, to measure ours against.
CREATE SCHEMA pubsub_bench;

-- The counter is locked by each publisher until its commit, and a trigger notifies in the same transaction.
CREATE TABLE pubsub_bench.log_counter (id integer PRIMARY KEY, next_offset bigint NOT NULL);
INSERT INTO pubsub_bench.log_counter VALUES (1, 1);
CREATE TABLE pubsub_bench.outbox (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), c_offset bigint NOT NULL UNIQUE, key text,
    transaction_id uuid NOT NULL, payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE pubsub_bench.cursors (group_id integer PRIMARY KEY, next_offset bigint NOT NULL);
CREATE FUNCTION pubsub_bench.wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('pubsub_bench', '');
    RETURN NULL;
END $$;
CREATE TRIGGER wake AFTER INSERT ON pubsub_bench.outbox FOR EACH STATEMENT EXECUTE FUNCTION pubsub_bench.wake();

CREATE TABLE pubsub_bench.raw (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text, payload jsonb NOT NULL
);
