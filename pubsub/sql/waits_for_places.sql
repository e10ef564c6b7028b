-- Whether messages of a topic have been committed and have no place in its log yet. Looks at the newest messages only, by
-- the index; of those, what the sequencer's snapshot has seen is numbered.
SELECT EXISTS (
    SELECT FROM outbox_message_t AS message JOIN log_sequencer AS sequencer ON sequencer.id = 1
    WHERE message.topic_id = %(topic_id)s AND message.xid >= pg_snapshot_xmin(sequencer.seen)
      AND NOT pg_visible_in_snapshot(message.xid, sequencer.seen)
)
