-- Counts a failure of the database under a handler, and lets the partition rest, the longer the more often in a row.
-- Where the server has been started since the attempt began, that was an outage, and no event is to blame. The caller
-- has the cursor's lock.
WITH before AS (
    SELECT group_id, topic_id, partition_id,
           CASE WHEN failing_offset = %(failing_offset)s THEN failures ELSE 0 END AS failures,
           CASE WHEN failing_offset = %(failing_offset)s THEN failing_s ELSE 0 END AS failing_s
    FROM consumer_offsets
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
)
UPDATE consumer_offsets AS cursor
SET failing_offset = %(failing_offset)s, failures = before.failures + 1,
    failing_s = before.failing_s + %(seconds)s,
    rests_until = clock_timestamp()
        + make_interval(secs => least(%(longest_rest_s)s, %(rest_s)s * 2.0 ^ least(before.failures, 20)))
FROM before
WHERE (cursor.group_id, cursor.topic_id, cursor.partition_id)
    = (before.group_id, before.topic_id, before.partition_id)
  AND pg_postmaster_start_time() < clock_timestamp() - make_interval(secs => %(began_s_ago)s)
