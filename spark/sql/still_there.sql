-- True while the first offset of a range is there; otherwise an error, because retention drops from the front:
-- a read must fail rather than be short. Worked out once a statement, on its own snapshot. (now() keeps the planner
-- from working the text out beforehand.)
CASE WHEN EXISTS (SELECT FROM log_entry WHERE topic_id = {topic_id} AND c_offset = {first})
     THEN true ELSE ({lost} || now())::boolean END
