-- Removes samples that are too old for any chart, a limited number at a time, the oldest first.
DELETE FROM outbox_samples
WHERE id IN (SELECT id FROM outbox_samples ORDER BY id LIMIT %(limit)s)
  AND taken_at < clock_timestamp() - make_interval(secs => %(older_s)s)
