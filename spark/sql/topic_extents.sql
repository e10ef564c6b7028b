-- What the log holds of each topic, all in one snapshot: its first and last offset. Nothing is counted. An empty topic, or
-- one whose events have all been dropped, begins after its end.
SELECT topic.id, topic.name, coalesce(oldest.c_offset, counter.next_offset, 1), coalesce(counter.next_offset - 1, 0),
       greatest(topic.total_partitions,
                (SELECT max(partition_id) + 1 FROM log_partition_counter WHERE topic_id = topic.id))
FROM outbox_topics AS topic
LEFT JOIN log_counter AS counter ON counter.topic_id = topic.id
LEFT JOIN LATERAL (
    SELECT c_offset FROM log_entry WHERE topic_id = topic.id ORDER BY c_offset LIMIT 1
) AS oldest ON true
ORDER BY topic.name
