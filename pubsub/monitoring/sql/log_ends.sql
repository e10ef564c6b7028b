-- The oldest offset that is kept, and the tip; null and 0 for an empty log.
SELECT (SELECT c_offset FROM log_entry WHERE topic_id = %(topic_id)s ORDER BY c_offset LIMIT 1),
       coalesce((SELECT next_offset - 1 FROM log_counter WHERE topic_id = %(topic_id)s), 0)
