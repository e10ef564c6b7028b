-- Which of the given groups' partitions have something to do: entries that have not been passed, or failed events whose
-- time has come. Reads a few small rows and never the log; the partition that has waited longest comes first.
SELECT place.group_id, topic.name, place.topic_id, place.partition_id,
       coalesce(numbered.entries, 0) > place.passed AS has_new,
       due.exist AS has_due
FROM consumer_offsets AS place
JOIN unnest(%(groups)s::text[], %(topics)s::text[]) AS wanted (group_id, topic) ON wanted.group_id = place.group_id
JOIN outbox_topics AS topic ON topic.id = place.topic_id AND topic.name = wanted.topic
JOIN outbox_topic_subscriptions AS subscription
  ON subscription.topic_id = place.topic_id AND subscription.group_id = place.group_id
 AND subscription.status = 'ACTIVE'
LEFT JOIN log_partition_counter AS numbered
       ON numbered.topic_id = place.topic_id AND numbered.partition_id = place.partition_id
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM dead_letter_queue
        WHERE group_id = place.group_id AND topic_id = place.topic_id AND partition_id = place.partition_id
          AND state = 'retrying' AND next_attempt_at <= statement_timestamp()
    ) AS exist
) AS due
WHERE (%(partitions)s::integer[] IS NULL OR place.partition_id = ANY (%(partitions)s::integer[]))
  AND (coalesce(numbered.entries, 0) > place.passed OR due.exist)
ORDER BY place.updated_at
