-- Whether a topic was made after a group had subscribed to another one of its kind. What else the group reads does not tell
-- since when it has read this kind.
SELECT EXISTS (
    SELECT FROM outbox_topics AS topic JOIN outbox_topic_subscriptions AS other ON other.created_at < topic.created_at
    JOIN outbox_topics AS alike ON alike.id = other.topic_id AND alike.name = ANY (%(alike)s)
    WHERE topic.id = %(topic_id)s AND other.group_id = %(group_id)s
)
