-- Publishes what the tasks of a batch have staged, in their order: rows of the transaction that also notes the batch.
INSERT INTO outbox_message_t (topic_id, type, key, host_id, user_id, to_group, payload, metadata)
SELECT topic.id, staged.type, staged.key, staged.host_id, staged.user_id, staged.to_group, staged.payload, staged.metadata
FROM unnest(%(tasks)s::uuid[]) WITH ORDINALITY AS task (id, number)
JOIN spark_staged_events AS staged ON staged.task_id = task.id
JOIN outbox_topics AS topic ON topic.name = staged.topic
ORDER BY task.number, staged.id
