-- Notes another attempt at the publisher's transaction that comes next, and up to where to go on like that: the end of
-- what the worker that died may have had in hand. Returns how many attempts that makes; no row if nothing comes next.
WITH coming AS MATERIALIZED (
    SELECT c_offset
    FROM pubsub_read_v1(%(topic_id)s, %(partition_id)s, %(group_id)s, %(position)s, %(below_position)s, %(limit)s)
), noted AS (
    INSERT INTO consumer_claims AS claim (
        group_id, topic_id, partition_id, first_offset, last_offset, worker_id, epoch, expires_at
    )
    SELECT %(group_id)s, %(topic_id)s, %(partition_id)s, min(c_offset), max(c_offset), %(worker_id)s, 0,
           clock_timestamp()
    FROM coming HAVING count(*) > 0
    ON CONFLICT (group_id, topic_id, partition_id) DO UPDATE
    SET attempts = CASE WHEN claim.first_offset = excluded.first_offset THEN claim.attempts + 1 ELSE 1 END,
        first_offset = excluded.first_offset, worker_id = excluded.worker_id,
        last_offset = CASE WHEN claim.last_offset < excluded.first_offset THEN excluded.last_offset
                           ELSE claim.last_offset END
    RETURNING attempts
)
SELECT attempts FROM noted
