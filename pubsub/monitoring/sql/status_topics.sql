-- Every topic: its tip, how much of it is kept, the size of an event, and its tip some minutes ago. Counts nothing: the
-- number of events is the difference of two counters, and an event's size is the average of the newest ones.
SELECT topic.id, topic.name, topic.semantics, topic.total_partitions, topic.retention, topic.zero_subscribers,
       coalesce(counter.next_offset - 1, 0) AS tip, coalesce(kept.entries, 0) AS kept,
       coalesce(newest.bytes, 0) AS event_bytes, newest.published_at,
       before.tip AS tip_before, extract(epoch FROM clock_timestamp() - before.taken_at)::float8 AS seconds_since
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
LEFT JOIN LATERAL (
    -- Nothing is written while nothing moves, so the last sample before a moment has the tip of that moment. A young topic
    -- has none: then its first one.
    (SELECT 1 AS choice, tip, taken_at FROM outbox_samples
     WHERE topic_id = topic.id AND group_id = '' AND taken_at <= clock_timestamp() - %(window)s::interval
     ORDER BY taken_at DESC LIMIT 1)
    UNION ALL
    (SELECT 2, tip, taken_at FROM outbox_samples WHERE topic_id = topic.id AND group_id = '' ORDER BY taken_at LIMIT 1)
    ORDER BY choice LIMIT 1
) AS before ON true
ORDER BY topic.name
