-- The position of a topic's offset, if its entry is still stored; the next position, if the offset is the next one. Null:
-- the entry has been dropped, or never existed.
SELECT coalesce(
    (SELECT position FROM log_entry WHERE topic_id = %(topic_id)s AND c_offset = %(c_offset)s),
    (SELECT next_position FROM log_sequencer
     WHERE coalesce((SELECT next_offset FROM log_counter WHERE topic_id = %(topic_id)s), 1) = %(c_offset)s)
)
