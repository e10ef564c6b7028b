-- Whether a topic was created after a group had subscribed to another one that the same pattern matches. The group's other
-- subscriptions do not count: they do not say since when it has read topics of this pattern.
SELECT EXISTS (
    SELECT FROM outbox_topics AS topic JOIN outbox_topic_subscriptions AS other ON other.created_at < topic.created_at
    JOIN outbox_topics AS alike ON alike.id = other.topic_id AND alike.name = ANY (%(alike)s)
    WHERE topic.id = %(topic_id)s AND other.group_id = %(group_id)s
)
