-- Removes the oldest rows of the audit log if they are too old. Reads no more of them than it may remove.
DELETE FROM operator_events
WHERE id IN (SELECT id FROM operator_events ORDER BY id LIMIT %(limit)s)
  AND happened_at < clock_timestamp() - make_interval(secs => %(older_s)s)
