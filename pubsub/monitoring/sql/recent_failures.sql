-- How the newest events have gone that a group has passed: of how many in a row, up to now, each has failed; how many of the
-- very newest have failed; since when, with which exception, and how many publishers' transactions that were. What the
-- group's filter leaves out was not handled, and what is parked has not been tried: neither counts. One row, numbered.
-- {filter} is the condition of the group's filter, and {n} the number.
SELECT {n} AS candidate, count(*) FILTER (WHERE successes = 0) AS in_a_row, count(*) FILTER (WHERE nth <= %(newest)s) AS newest,
       count(letter_id) FILTER (WHERE nth <= %(newest)s) AS newest_failed, min(created_at) FILTER (WHERE is_recent) AS since,
       count(DISTINCT transaction_id) FILTER (WHERE is_recent) AS transactions,
       coalesce(mode() WITHIN GROUP (ORDER BY exception_class) FILTER (WHERE is_recent), '') AS exception
FROM (
    SELECT *, letter_id IS NOT NULL AND (successes = 0 OR nth <= %(newest)s) AS is_recent
    FROM (
        SELECT letter.id AS letter_id, letter.created_at, letter.transaction_id, letter.exception_class,
               row_number() OVER (ORDER BY entry.position DESC) AS nth,
               count(*) FILTER (WHERE letter.id IS NULL) OVER (ORDER BY entry.position DESC) AS successes
        FROM (
            SELECT entry.* FROM consumer_offsets AS cursor
            CROSS JOIN LATERAL (
                SELECT position, c_offset, message_id, topic_id FROM log_entry
                WHERE topic_id = cursor.topic_id AND partition_id = cursor.partition_id
                  AND position < cursor.next_position
                ORDER BY position DESC LIMIT %(looked_at)s
            ) AS entry
            WHERE cursor.group_id = %(group_{n})s AND cursor.topic_id = %(topic_{n})s
            ORDER BY entry.position DESC LIMIT %(looked_at)s
        ) AS entry
        CROSS JOIN LATERAL (SELECT * FROM outbox_message_t WHERE id = entry.message_id OFFSET 0) AS message
        LEFT JOIN dead_letter_queue AS letter
               ON letter.group_id = %(group_{n})s AND letter.topic_id = entry.topic_id
              AND letter.c_offset = entry.c_offset AND letter.state IN ('retrying', 'dead', 'parked')
        WHERE (message.to_group IS NULL OR message.to_group = %(group_{n})s) AND ({filter})
          AND letter.state IS DISTINCT FROM 'parked'
    ) AS outcome
) AS outcome
