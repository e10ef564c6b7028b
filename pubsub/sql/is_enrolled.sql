-- Whether a group has a subscription to a topic and a place in each of its partitions.
SELECT EXISTS (SELECT FROM outbox_topic_subscriptions WHERE topic_id = %(topic_id)s AND group_id = %(group_id)s)
   AND total_partitions <= (SELECT count(*) FROM consumer_offsets
                            WHERE topic_id = %(topic_id)s AND group_id = %(group_id)s)
FROM outbox_topics WHERE id = %(topic_id)s
