-- Whether a topic has committed events without an offset. Reads only the newest events, by the index; of
-- those, the ones that the sequencer's snapshot has seen are numbered.
SELECT EXISTS (
    SELECT FROM outbox_message_t AS message JOIN log_sequencer AS sequencer ON sequencer.id = 1
    WHERE message.topic_id = %(topic_id)s AND message.xid >= pg_snapshot_xmin(sequencer.seen)
      AND NOT pg_visible_in_snapshot(message.xid, sequencer.seen)
)
