-- The log: which event stands at which offset of its topic. Insert-only, partitioned by position.
-- (topic_id, c_offset) is unique within each partition; that it is so across them follows from the sequencer's lock.
CREATE TABLE log_entry (
    position     bigint  NOT NULL,
    c_offset     bigint  NOT NULL CONSTRAINT log_entry_from_one CHECK (c_offset >= 1),
    message_id   bigint  NOT NULL,
    topic_id     integer NOT NULL,
    partition_id integer NOT NULL
) PARTITION BY RANGE (position);

-- Ordered like the segments themselves, so that a reader with a LIMIT opens only those that it needs.
CREATE INDEX log_entry_walk ON log_entry (topic_id, partition_id, position);

COMMENT ON TABLE log_entry IS
    'The log: which event stands at which offset; insert-only, partitioned by position';
COMMENT ON COLUMN log_entry.position IS 'Gapless over all topics; the order of storage';
COMMENT ON COLUMN log_entry.c_offset IS 'Gapless from 1 within the topic';
COMMENT ON COLUMN log_entry.message_id IS 'outbox_message_t.id';
COMMENT ON COLUMN log_entry.topic_id IS 'outbox_topics.id';
COMMENT ON COLUMN log_entry.partition_id IS 'Decided when numbered, so that a later resize moves nothing';
