-- Where an offset of a topic stands in the log, if its entry is still there; behind the end, if it is the next to come.
-- Null: it has been dropped, or has never been.
SELECT coalesce(
    (SELECT position FROM log_entry WHERE topic_id = %(topic_id)s AND c_offset = %(c_offset)s),
    (SELECT next_position FROM log_sequencer
     WHERE coalesce((SELECT next_offset FROM log_counter WHERE topic_id = %(topic_id)s), 1) = %(c_offset)s)
)
