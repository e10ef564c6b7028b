-- What has been published since a transaction began, committed or not, in the order of delivery: messages as they were
-- inserted, then those that are delayed, by their time. What is not numbered yet has the offset, and the partition,
-- that it would get if it were committed and numbered now. For tests, whose tables are small.
WITH message AS (
    SELECT id, topic_id, to_group, NULL::timestamptz AS deliver_at, {names} FROM outbox_message_t
    UNION ALL
    SELECT id, topic_id, to_group, deliver_at, {names} FROM outbox_delayed_message
)
SELECT topic.name,
       coalesce(
           entry.partition_id,
           mod(
               abs(hashtext(coalesce(message.key, message.host_id, message.transaction_id::text))::bigint),
               topic.total_partitions
           )
       )::integer,
       message.to_group, message.deliver_at, coalesce(entry.position, 0),
       coalesce(
           entry.c_offset,
           coalesce(counter.next_offset, 1) - 1 + row_number() OVER (
               PARTITION BY message.topic_id, entry.c_offset IS NULL ORDER BY message.deliver_at NULLS FIRST, message.id
           )
       ),
       true, false, {columns}
FROM message
JOIN outbox_topics AS topic ON topic.id = message.topic_id
LEFT JOIN log_counter AS counter ON counter.topic_id = message.topic_id
LEFT JOIN log_entry AS entry
       ON message.deliver_at IS NULL AND entry.message_id = message.id AND entry.topic_id = message.topic_id
-- A transaction's id is made of the server's start and the transaction's number, so it grows.
WHERE message.transaction_id >= %(since)s
ORDER BY message.deliver_at NULLS FIRST, message.id
