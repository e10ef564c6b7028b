-- Writes down what a worker has had in hand for long. How long is turned into since when, by the database's clock.
UPDATE outbox_workers
SET in_hand = coalesce((
    SELECT jsonb_agg(
        call - 'for_s'
        || jsonb_build_object('since', clock_timestamp() - make_interval(secs => (call ->> 'for_s')::float8))
    )
    FROM jsonb_array_elements(%(calls)s::jsonb) AS call
), '[]')
WHERE worker_id = %(worker_id)s
