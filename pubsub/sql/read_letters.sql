-- Failed events, in order, as pubsub_read_v1 tells those of the log.
SELECT c_offset, transaction_id, true, event_id, type, key, payload, metadata, host_id, user_id,
       date_part('epoch', published_at)
FROM dead_letter_queue
WHERE id = ANY (%(ids)s)
ORDER BY c_offset
