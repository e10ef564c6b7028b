-- The next events of a partition, as pubsub_read_v1 reads them, for groups with a filter ({filter} is its condition), or
-- whose events wait behind a failed one of their key: says also which those are. Events that are not for the group come
-- without their content; they are only passed.
SELECT entry.position, entry.c_offset, mine.is_mine,
       mine.is_mine AND %(parks_keys)s AND EXISTS (
           SELECT FROM dead_letter_queue AS earlier
           WHERE coalesce(earlier.key, earlier.host_id) = coalesce(message.key, message.host_id)
             AND earlier.group_id = %(group_id)s AND earlier.topic_id = %(topic_id)s
             AND earlier.c_offset < entry.c_offset AND earlier.state IN ('retrying', 'dead', 'parked')
       ),
       {columns}
FROM log_entry AS entry JOIN outbox_message_t AS message ON message.id = entry.message_id
CROSS JOIN LATERAL (
    SELECT coalesce(message.to_group = %(group_id)s, true) AND ({filter}) AS is_mine OFFSET 0
) AS mine
WHERE entry.topic_id = %(topic_id)s AND entry.partition_id = %(partition_id)s
  AND entry.position >= %(position)s AND entry.position < coalesce(
      %(below_position)s,
      -- A resize may have come since the worker looked for work, as in pubsub_read_v1.
      (SELECT min(resize.position)
       FROM outbox_topic_resizes AS resize JOIN outbox_topic_subscriptions AS subscription
         ON subscription.topic_id = resize.topic_id AND subscription.group_id = %(group_id)s
       WHERE resize.topic_id = %(topic_id)s AND resize.position > subscription.resizes_passed),
      9223372036854775807
  )
ORDER BY entry.position
LIMIT %(limit)s
