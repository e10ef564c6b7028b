-- Between which numbers the messages of a range are; of the reader's own snapshot, once a statement.
message_id BETWEEN
    (SELECT min(message_id) FROM log_entry WHERE topic_id = {topic_id} AND c_offset BETWEEN {first} AND {last})
    AND (SELECT max(message_id) FROM log_entry WHERE topic_id = {topic_id} AND c_offset BETWEEN {first} AND {last})
