-- Whether a group has a subscription to a topic as declared, and a cursor in each of its partitions, including those
-- from before a resize that still hold entries; and whether it has a subscription at all.
SELECT EXISTS (
           SELECT FROM outbox_topic_subscriptions
           WHERE topic_id = %(topic_id)s AND group_id = %(group_id)s
             AND ("where", delivery, on_failure, retry_delays)
               = (%(where)s::jsonb, %(delivery)s, %(on_failure)s, %(retry_delays)s::jsonb)
             AND expires_after IS NOT DISTINCT FROM %(expires_after)s::interval
             AND timeout IS NOT DISTINCT FROM make_interval(secs => %(timeout)s)
       )
   AND NOT EXISTS (
           SELECT FROM (
               SELECT generate_series(0, total_partitions - 1)
               UNION
               SELECT partition_id FROM log_partition_counter WHERE topic_id = %(topic_id)s AND entries > retired
           ) AS present (partition_id)
           WHERE NOT EXISTS (
               SELECT FROM consumer_offsets AS cursor
               WHERE cursor.topic_id = %(topic_id)s AND cursor.group_id = %(group_id)s
                 AND cursor.partition_id = present.partition_id
           )
       ),
       EXISTS (SELECT FROM outbox_topic_subscriptions WHERE topic_id = %(topic_id)s AND group_id = %(group_id)s)
FROM outbox_topics WHERE id = %(topic_id)s
