-- Whether an operator has asked a worker to stop.
SELECT EXISTS (SELECT FROM outbox_workers WHERE worker_id = %(worker_id)s AND stop_requested_at IS NOT NULL)
