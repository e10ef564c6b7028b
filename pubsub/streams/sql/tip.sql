-- Where the log ends, and where each topic does, all at one moment: every entry before the tip is visible by then, and so
-- is its topic.
SELECT sequencer.next_position, topic.id, topic.name, coalesce(counter.next_offset, 1)
FROM log_sequencer AS sequencer
CROSS JOIN outbox_topics AS topic
LEFT JOIN log_counter AS counter ON counter.topic_id = topic.id
WHERE sequencer.id = 1
