-- Whether a topic was made after a group had subscribed to another one.
SELECT EXISTS (
    SELECT FROM outbox_topics AS topic JOIN outbox_topic_subscriptions AS other ON other.created_at < topic.created_at
    WHERE topic.id = %(topic_id)s AND other.group_id = %(group_id)s
)
