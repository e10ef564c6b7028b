-- Every topic: its tip, how much of it is kept, the size of an event, and how many were published in the last minutes.
-- Counts nothing: numbers of events are differences of counters and of offsets, and an event's size is the average of the
-- newest ones.
SELECT topic.id, topic.name, topic.semantics, topic.total_partitions, topic.retention, topic.zero_subscribers,
       coalesce(counter.next_offset - 1, 0) AS tip, coalesce(kept.entries, 0) AS kept,
       coalesce(newest.bytes, 0) AS event_bytes, newest.published_at,
       CASE WHEN newest.published_at > clock_timestamp() - %(window)s::interval
            THEN counter.next_offset
                 - pubsub_offset_at_v1(topic.id, clock_timestamp() - %(window)s::interval, interval '0')
            ELSE 0 END AS recent,
       extract(epoch FROM least(%(window)s::interval, clock_timestamp() - topic.created_at))::float8 AS seconds
FROM outbox_topics AS topic
LEFT JOIN log_counter AS counter ON counter.topic_id = topic.id
LEFT JOIN (
    SELECT topic_id, sum(entries - retired)::bigint AS entries FROM log_partition_counter GROUP BY topic_id
) AS kept ON kept.topic_id = topic.id
LEFT JOIN LATERAL (
    SELECT avg(pg_column_size(payload) + pg_column_size(metadata)
               + coalesce(octet_length(type), 0) + coalesce(octet_length(key), 0))::bigint
           + %(bytes_beside)s AS bytes,
           max(created_at) AS published_at
    FROM log_entry AS entry JOIN outbox_message_t AS message ON message.id = entry.message_id
    WHERE entry.topic_id = topic.id AND entry.c_offset BETWEEN counter.next_offset - %(newest)s AND counter.next_offset
) AS newest ON true
ORDER BY topic.name
