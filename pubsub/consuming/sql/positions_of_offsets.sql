-- Where the entries of a partition between two offsets stand in the storage's order.
SELECT min(position), max(position) FROM log_entry
WHERE topic_id = %(topic_id)s AND partition_id = %(partition_id)s
  AND c_offset BETWEEN %(first_offset)s AND %(last_offset)s
