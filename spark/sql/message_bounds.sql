-- The lowest and highest message id in a range, in the reader's own snapshot, once per statement.
message_id BETWEEN
    (SELECT min(message_id) FROM log_entry WHERE topic_id = {topic_id} AND c_offset BETWEEN {first} AND {last})
    AND (SELECT max(message_id) FROM log_entry WHERE topic_id = {topic_id} AND c_offset BETWEEN {first} AND {last})
