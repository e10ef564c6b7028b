-- What has been published since a transaction began, committed or not, in the order of delivery: messages as they were
-- inserted, then those that are delayed, by their time. What is not numbered yet has the offset, and the partition,
-- that it would get if it were committed and numbered now. For tests, whose tables are small.
WITH message AS (
    SELECT id, event_id, topic_id, type, key, host_id, user_id, to_group, payload, metadata, transaction_id, created_at,
           NULL::timestamptz AS deliver_at
    FROM outbox_message_t
    UNION ALL
    SELECT id, event_id, topic_id, type, key, host_id, user_id, to_group, payload, metadata, transaction_id, created_at,
           deliver_at
    FROM outbox_delayed_message
)
SELECT topic.name AS topic,
       coalesce(
           entry.c_offset,
           coalesce(counter.next_offset, 1) - 1 + row_number() OVER (
               PARTITION BY message.topic_id, entry.c_offset IS NULL ORDER BY message.deliver_at NULLS FIRST, message.id
           )
       ) AS "offset",
       coalesce(
           entry.partition_id,
           mod(
               abs(hashtext(coalesce(message.key, message.host_id, message.transaction_id::text))::bigint),
               topic.total_partitions
           )
       )::integer AS partition,
       message.event_id AS id, message.type, message.key, message.host_id, message.user_id, message.payload,
       message.metadata, message.transaction_id, message.created_at, message.to_group, message.deliver_at
FROM message
JOIN outbox_topics AS topic ON topic.id = message.topic_id
LEFT JOIN log_counter AS counter ON counter.topic_id = message.topic_id
LEFT JOIN log_entry AS entry
       ON message.deliver_at IS NULL AND entry.message_id = message.id AND entry.topic_id = message.topic_id
-- A transaction's id is made of the server's start and the transaction's number, so it grows.
WHERE message.transaction_id >= %(since)s
ORDER BY message.deliver_at NULLS FIRST, message.id
