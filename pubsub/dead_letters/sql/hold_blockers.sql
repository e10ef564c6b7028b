-- Keeps the last event that each of these keys waits for as it is until the transaction is over: the transaction that
-- resolves it then sees who waits. Events that come before it are resolved before it, or leave it waiting.
SELECT FROM dead_letter_queue
WHERE id = ANY (ARRAY(
    SELECT last.id
    FROM unnest(%(keys)s::text[], %(before_offsets)s::bigint[]) AS waiting (key, c_offset)
    CROSS JOIN LATERAL (
        SELECT id FROM dead_letter_queue
        WHERE coalesce(key, host_id) = waiting.key AND group_id = %(group_id)s AND topic_id = %(topic_id)s
          AND c_offset < waiting.c_offset AND state IN ('retrying', 'dead', 'parked')
        ORDER BY c_offset DESC LIMIT 1
    ) AS last
))
ORDER BY id
FOR SHARE
