-- Groups that wait until one of these workers has a thread free: they have no other worker that lives. {is_alive} says
-- which workers live.
SELECT topic.name AS topic, member.group_id, array_agg(member.worker_id) AS workers
FROM outbox_members AS member
JOIN outbox_topics AS topic ON topic.id = member.topic_id
JOIN outbox_workers AS worker ON worker.worker_id = member.worker_id
WHERE {is_alive}
GROUP BY topic.name, member.group_id
HAVING bool_and(member.worker_id = ANY (%(workers)s))
