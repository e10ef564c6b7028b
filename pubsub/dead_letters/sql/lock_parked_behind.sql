-- Parked events that are free to go once these transactions are handled, in which each of these keys comes last at an
-- offset: about so many, locked. Of each key they are what follows without a gap; a transaction with an event of any
-- other key ends it. Each step is a subquery of its own (see unpark.sql).
WITH free AS MATERIALIZED (
    SELECT asked.key, asked.c_offset
    FROM unnest(%(keys)s::text[], %(last_offsets)s::bigint[]) AS asked (key, c_offset)
    WHERE NOT EXISTS (
        SELECT FROM dead_letter_queue AS earlier
        WHERE coalesce(earlier.key, earlier.host_id) = asked.key AND earlier.group_id = %(group_id)s
          AND earlier.topic_id = %(topic_id)s AND earlier.c_offset < asked.c_offset
          AND earlier.state IN ('retrying', 'dead', 'parked')
          AND NOT earlier.transaction_id = ANY (%(transactions)s::uuid[])
    )
), following AS MATERIALIZED (
    SELECT next.*,
           bool_and(next.state = 'parked' AND next.partition_id = %(partition_id)s)
               OVER (PARTITION BY free.key ORDER BY next.c_offset) AS is_free
    FROM free
    CROSS JOIN LATERAL (
        SELECT transaction_id, partition_id, c_offset, state FROM dead_letter_queue
        WHERE coalesce(key, host_id) = free.key AND group_id = %(group_id)s AND topic_id = %(topic_id)s
          AND c_offset > free.c_offset AND state IN ('retrying', 'dead', 'parked')
        ORDER BY c_offset LIMIT %(limit)s
    ) AS next
), candidate AS MATERIALIZED (
    SELECT transaction_id, min(c_offset) AS first_offset, count(*) AS events
    FROM following WHERE is_free
    GROUP BY transaction_id ORDER BY first_offset LIMIT %(limit)s
), whole AS MATERIALIZED (
    SELECT candidate.first_offset, letters.ids, letters.with_key = candidate.events AS is_free
    FROM candidate
    CROSS JOIN LATERAL (
        SELECT array_agg(id) AS ids, count(coalesce(key, host_id)) AS with_key FROM dead_letter_queue
        WHERE transaction_id = candidate.transaction_id AND group_id || '' = %(group_id)s
          AND topic_id + 0 = %(topic_id)s AND partition_id = %(partition_id)s
        OFFSET 0
    ) AS letters
)
SELECT id, attempts, coalesce(key, host_id), transaction_id, c_offset, state,
       coalesce(date_part('epoch', next_attempt_at), 0), coalesce(c_offset <= (
           SELECT alone_to FROM consumer_offsets
           WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
       ), false)
FROM dead_letter_queue
WHERE id = ANY (ARRAY(
    SELECT unnest(ids) FROM whole
    WHERE first_offset < coalesce((SELECT min(first_offset) FROM whole WHERE NOT is_free), 9223372036854775807)
)) AND state || '' = 'parked'
ORDER BY id
FOR UPDATE
