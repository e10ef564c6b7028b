-- How many entries of any topic lie between the first and the last of a range, both included.
SELECT coalesce(max(position) - min(position) + 1, 0) FROM log_entry
WHERE topic_id = %(topic_id)s AND c_offset IN (%(first)s, %(last)s)
