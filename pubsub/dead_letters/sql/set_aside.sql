-- Sets the events of some ranges aside for one group. Payloads are copied inside the database, whatever is in them and
-- however large they are. While delays are left the events are retried, then they are dead letters; parked ones wait
-- for those before them. One that has failed before, and comes again because the group went back, counts on. {filter}
-- is the condition of the group's filter. The attempt is kept once, with the first event.
-- Returns how many events were set aside, their keys, the offset of the first one of each, and the first one's id.
WITH failed AS (
    INSERT INTO dead_letter_queue AS letter (
        group_id, topic_id, partition_id, c_offset, handler, exception_class, exception_message, traceback, attempts,
        state, next_attempt_at, {letter_columns}
    )
    SELECT %(group_id)s, entry.topic_id, entry.partition_id, entry.c_offset, %(handler)s, %(exception_class)s,
           %(exception_message)s, %(traceback)s, %(attempts)s, %(state)s,
           clock_timestamp() + make_interval(secs => %(delay)s), {message_columns}
    FROM unnest(%(first_positions)s::bigint[], %(last_positions)s::bigint[]) AS range (first_position, last_position)
    -- A few rows by an index each, whatever is known of the tables.
    CROSS JOIN LATERAL (
        SELECT * FROM log_entry
        WHERE topic_id = %(topic_id)s AND partition_id = %(partition_id)s
          AND position BETWEEN range.first_position AND range.last_position
          AND position BETWEEN %(from_position)s AND %(to_position)s
        OFFSET 0
    ) AS entry
    CROSS JOIN LATERAL (
        SELECT * FROM outbox_message_t WHERE id = entry.message_id OFFSET 0
    ) AS message
    WHERE (message.to_group IS NULL OR message.to_group = %(group_id)s) AND ({filter})
    ORDER BY entry.position
    ON CONFLICT (group_id, topic_id, c_offset) DO UPDATE
    SET handler = excluded.handler, exception_class = excluded.exception_class,
        exception_message = excluded.exception_message, traceback = excluded.traceback,
        attempts = letter.attempts + excluded.attempts, state = excluded.state,
        next_attempt_at = excluded.next_attempt_at, updated_at = clock_timestamp()
    RETURNING id, c_offset, attempts, coalesce(key, host_id) AS ordering_key
), kept AS (
    INSERT INTO dead_letter_attempts (letter_id, attempt, handler, exception_class, exception_message, traceback)
    SELECT id, attempts, %(handler)s, %(exception_class)s, %(exception_message)s, %(traceback)s
    FROM failed WHERE attempts > 0 AND %(state)s <> 'parked' ORDER BY c_offset LIMIT 1
), of_key AS (
    SELECT ordering_key, min(c_offset) AS c_offset FROM failed WHERE ordering_key IS NOT NULL GROUP BY ordering_key
)
SELECT (SELECT count(*) FROM failed), coalesce(array_agg(ordering_key), '{}'), coalesce(array_agg(c_offset), '{}'),
       (SELECT id FROM failed ORDER BY c_offset LIMIT 1)
FROM of_key
