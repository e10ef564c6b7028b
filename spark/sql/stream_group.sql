-- How a stream's group stands: its status, and the first offset that it has not passed in every partition.
SELECT subscription.status, min(place.next_offset)
FROM outbox_topic_subscriptions AS subscription
LEFT JOIN consumer_offsets AS place ON place.topic_id = subscription.topic_id AND place.group_id = subscription.group_id
WHERE subscription.topic_id = %(topic_id)s AND subscription.group_id = %(group)s
GROUP BY subscription.status
