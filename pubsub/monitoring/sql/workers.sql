-- Every worker, those that have fallen silent included: what it works for, when it was heard of last, whether it lives,
-- and what it has in hand. {is_alive} says which workers live.
SELECT worker.worker_id, worker.host, worker.pid, worker.threads, worker.started_at, worker.stop_requested_at,
       works.heard_at, coalesce(works.groups, '{}') AS groups, {is_alive} AS is_alive, clock_timestamp() AS now
FROM outbox_workers AS worker
LEFT JOIN LATERAL (
    SELECT max(member.last_heartbeat_at) AS heard_at,
           array_agg(ARRAY[topic.name, member.group_id] ORDER BY topic.name, member.group_id) AS groups
    FROM outbox_members AS member JOIN outbox_topics AS topic ON topic.id = member.topic_id
    WHERE member.worker_id = worker.worker_id
) AS works ON true
ORDER BY is_alive DESC, worker.started_at, worker.worker_id
