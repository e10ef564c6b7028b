-- A process's heartbeat: one update for all groups that it works for. Returns how many those are, the shortest interval in
-- seconds that one of them asks for, and whether one of them is dead.
WITH alive AS (
    UPDATE outbox_members SET last_heartbeat_at = clock_timestamp()
    WHERE worker_id = %(worker_id)s AND (topic_id, group_id) IN (
        SELECT topic.id, wanted.group_id
        FROM unnest(%(topics)s::text[], %(groups)s::text[]) AS wanted (topic, group_id)
        JOIN outbox_topics AS topic ON topic.name = wanted.topic
    )
    RETURNING topic_id, group_id
)
SELECT count(*), extract(epoch FROM min(heartbeat_interval))::float, coalesce(bool_or(status = 'DEAD'), false)
FROM alive JOIN outbox_topic_subscriptions USING (topic_id, group_id)
