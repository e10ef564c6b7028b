-- The oldest offset of a topic that is still stored, and the last one; no row if the topic never had an event.
SELECT coalesce((SELECT c_offset FROM log_entry WHERE topic_id = %(topic_id)s ORDER BY c_offset LIMIT 1), next_offset),
       next_offset - 1
FROM log_counter WHERE topic_id = %(topic_id)s
