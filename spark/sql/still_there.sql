-- True while the first offset of a range is stored; otherwise an error, because retention drops from the front: a read
-- must fail rather than be short. Evaluated once per statement, in its own snapshot. (now() keeps the planner from
-- evaluating the text beforehand.)
CASE WHEN EXISTS (SELECT FROM log_entry WHERE topic_id = {topic_id} AND c_offset = {first})
     THEN true ELSE ({lost} || now())::boolean END
