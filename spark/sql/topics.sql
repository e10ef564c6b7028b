-- Topics, with the last offset of each.
SELECT topic.id AS topic_id, topic.name AS topic, topic.semantics, topic.total_partitions,
       extract(epoch FROM topic.retention)::double precision AS retention_s,
       extract(epoch FROM topic.max_age)::double precision AS max_age_s, topic.max_bytes, topic.zero_subscribers,
       coalesce(counter.next_offset - 1, 0) AS tip, topic.created_at
FROM outbox_topics AS topic LEFT JOIN log_counter AS counter ON counter.topic_id = topic.id
