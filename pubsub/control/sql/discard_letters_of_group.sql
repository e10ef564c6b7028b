-- Discards all dead letters of a group that is about to be removed: no consumer would ever try them again.
UPDATE dead_letter_queue
SET state = 'discarded', next_attempt_at = NULL, updated_at = clock_timestamp()
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND state = ANY (%(states)s)
