-- Takes a lease on a range of a partition, under the next epoch of its cursor. The caller has the cursor's lock.
WITH moved AS (
    UPDATE consumer_offsets SET epoch = %(epoch)s
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
)
INSERT INTO consumer_claims AS lease (
    group_id, topic_id, partition_id, first_offset, last_offset, worker_id, lock_key, epoch, attempts, expires_at
)
VALUES (%(group_id)s, %(topic_id)s, %(partition_id)s, %(first_offset)s, %(last_offset)s, %(worker_id)s, %(lock_key)s,
        %(epoch)s, %(attempts)s, clock_timestamp() + make_interval(secs => %(lease_s)s))
ON CONFLICT (group_id, topic_id, partition_id) DO UPDATE
SET first_offset = excluded.first_offset, last_offset = excluded.last_offset, worker_id = excluded.worker_id,
    lock_key = excluded.lock_key, epoch = excluded.epoch, attempts = excluded.attempts,
    taken_at = clock_timestamp(), expires_at = excluded.expires_at
