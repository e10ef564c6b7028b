-- What workers that live have had in hand for longer than a second, the oldest first. {is_alive} says which workers live.
SELECT worker.worker_id, worker.host, worker.pid, worker.threads, call."group", call.topic, call.partition,
       call."offset", call.event_id, call.events, call.handler, call.session_pid, call.is_overdue, call.since,
       greatest(0, extract(epoch FROM clock_timestamp() - call.since))::float8 AS seconds
FROM outbox_workers AS worker
CROSS JOIN LATERAL jsonb_to_recordset(worker.in_hand) AS call (
    "group" text, topic text, partition integer, "offset" bigint, event_id uuid, events integer, handler text,
    session_pid integer, is_overdue boolean, since timestamptz
)
WHERE worker.in_hand <> '[]' AND {is_alive}
ORDER BY call.since
