-- The next events of a partition, as pubsub_read_v1 tells them, for groups that want only some of them ({chosen} stands
-- for which), or let events wait behind a failed one of their key: says also which those are. Events that are not for
-- the group are told without their content; they are only passed.
SELECT entry.position, entry.c_offset, message.transaction_id, mine.is_mine, message.event_id, message.type, message.key,
       CASE WHEN mine.is_mine THEN message.payload END, message.metadata, message.host_id, message.user_id,
       date_part('epoch', message.created_at),
       mine.is_mine AND %(parks_keys)s AND EXISTS (
           SELECT FROM dead_letter_queue AS earlier
           WHERE coalesce(earlier.key, earlier.host_id) = coalesce(message.key, message.host_id)
             AND earlier.group_id = %(group_id)s AND earlier.topic_id = %(topic_id)s
             AND earlier.c_offset < entry.c_offset AND earlier.state IN ('retrying', 'dead', 'parked')
       )
FROM log_entry AS entry JOIN outbox_message_t AS message ON message.id = entry.message_id
CROSS JOIN LATERAL (
    SELECT coalesce(message.to_group = %(group_id)s, true) AND ({chosen}) AS is_mine OFFSET 0
) AS mine
WHERE entry.topic_id = %(topic_id)s AND entry.partition_id = %(partition_id)s
  AND entry.position >= %(position)s AND entry.position < coalesce(
      %(below_position)s,
      -- A resize may have come since somebody looked, as in pubsub_read_v1.
      (SELECT min(resize.position)
       FROM outbox_topic_resizes AS resize JOIN outbox_topic_subscriptions AS subscription
         ON subscription.topic_id = resize.topic_id AND subscription.group_id = %(group_id)s
       WHERE resize.topic_id = %(topic_id)s AND resize.position > subscription.resizes_passed),
      9223372036854775807
  )
ORDER BY entry.position
LIMIT %(limit)s
