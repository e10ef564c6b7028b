-- Removes the oldest rows of the journal, as far as they are too old. Looks at no more of them than it may remove.
DELETE FROM operator_events
WHERE id IN (SELECT id FROM operator_events ORDER BY id LIMIT %(limit)s)
  AND happened_at < clock_timestamp() - make_interval(secs => %(older_s)s)
