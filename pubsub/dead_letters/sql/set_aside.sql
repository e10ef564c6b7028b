-- Sets the events of a range aside for one group. Payloads are copied inside the database, whatever is in them and
-- however large they are. While delays are left the events are retried, then they are dead letters; parked ones wait
-- for those before them. One that has failed before, and comes again because the group went back, counts on. {filter}
-- is the condition of the group's filter. The attempt is kept once, with the first event.
-- Returns how many events were set aside, their keys, and the first one's offset and id.
WITH failed AS (
    INSERT INTO dead_letter_queue AS letter (
        group_id, topic_id, partition_id, c_offset, handler, exception_class, exception_message, traceback, attempts,
        state, next_attempt_at, {letter_columns}
    )
    SELECT %(group_id)s, entry.topic_id, entry.partition_id, entry.c_offset, %(handler)s, %(exception_class)s,
           %(exception_message)s, %(traceback)s, %(attempts)s, %(state)s,
           clock_timestamp() + make_interval(secs => %(delay)s), {message_columns}
    FROM log_entry AS entry JOIN outbox_message_t AS message ON message.id = entry.message_id
    WHERE entry.topic_id = %(topic_id)s AND entry.partition_id = %(partition_id)s
      AND entry.position BETWEEN %(first_position)s AND %(last_position)s
      AND (message.to_group IS NULL OR message.to_group = %(group_id)s) AND ({filter})
    ON CONFLICT (group_id, topic_id, c_offset) DO UPDATE
    SET handler = excluded.handler, exception_class = excluded.exception_class,
        exception_message = excluded.exception_message, traceback = excluded.traceback,
        attempts = letter.attempts + excluded.attempts, state = excluded.state,
        next_attempt_at = excluded.next_attempt_at, updated_at = clock_timestamp()
    RETURNING id, c_offset, attempts, key, host_id
), kept AS (
    INSERT INTO dead_letter_attempts (letter_id, attempt, handler, exception_class, exception_message, traceback)
    SELECT id, attempts, %(handler)s, %(exception_class)s, %(exception_message)s, %(traceback)s
    FROM failed WHERE attempts > 0 AND %(state)s <> 'parked' ORDER BY c_offset LIMIT 1
)
SELECT count(*), coalesce(array_agg(DISTINCT coalesce(key, host_id)) FILTER (WHERE coalesce(key, host_id) IS NOT NULL),
                          '{}'), min(c_offset), (array_agg(id ORDER BY c_offset))[1]
FROM failed
