-- An event's delivery to each group that subscribes to its topic, as far as it can be known.
SELECT subscription.id, subscription.group_id, subscription.status, cursor.next_offset, cursor.updated_at,
       cursor.next_position IS NOT NULL AND cursor.next_position > %(position)s AS has_passed,
       %(to_group)s::text IS NOT NULL AND %(to_group)s::text <> subscription.group_id AS is_for_others,
       subscription."where"::text AS filter, letter.id AS letter_id, letter.state AS letter_state
FROM outbox_topic_subscriptions AS subscription
LEFT JOIN consumer_offsets AS cursor
       ON cursor.topic_id = subscription.topic_id AND cursor.group_id = subscription.group_id
      AND cursor.partition_id = %(partition_id)s
LEFT JOIN dead_letter_queue AS letter
       ON letter.group_id = subscription.group_id AND letter.topic_id = subscription.topic_id
      AND letter.c_offset = %(c_offset)s
WHERE subscription.topic_id = %(topic_id)s
ORDER BY subscription.group_id
