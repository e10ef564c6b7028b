-- Changes the payload of a dead letter that waits for an operator, if it is still the one that was seen. The one that
-- was published is kept, once; where it comes back nothing has been edited.
UPDATE dead_letter_queue
SET payload = %(payload)s::jsonb,
    original_payload = nullif(coalesce(original_payload, payload), %(payload)s::jsonb),
    updated_at = clock_timestamp()
WHERE id = %(id)s AND state = 'dead'
  AND (%(seen)s::text IS NULL OR md5(payload::text) = %(seen)s::text)
RETURNING group_id, topic_id, original_payload IS NOT NULL
