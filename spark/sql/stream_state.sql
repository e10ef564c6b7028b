-- What a stream needs to know about its topics before it continues, in one snapshot: what the log holds of each, and which
-- event comes right before the stream's next offset. Null for a topic that does not exist.
SELECT wanted.topic, topic.id,
       coalesce((SELECT c_offset FROM log_entry WHERE topic_id = topic.id ORDER BY c_offset LIMIT 1),
                counter.next_offset, 1),
       coalesce(counter.next_offset, 1),
       (SELECT message.event_id::text
        FROM log_entry AS entry JOIN outbox_message_t AS message ON message.id = entry.message_id
        WHERE entry.topic_id = topic.id AND entry.c_offset = wanted.next_offset - 1)
FROM unnest(%(topics)s::text[], %(offsets)s::bigint[]) AS wanted (topic, next_offset)
LEFT JOIN outbox_topics AS topic ON topic.name = wanted.topic
LEFT JOIN log_counter AS counter ON counter.topic_id = topic.id
