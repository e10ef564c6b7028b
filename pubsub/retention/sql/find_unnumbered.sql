-- Whether a partition of messages, named in the braces, holds a message with a smaller id that has not been numbered.
-- The caller keeps publishers out, so this must be quick: `id + 0` keeps the planner from walking along the ids, nearly
-- all of which have been numbered.
EXISTS (SELECT FROM {partition} WHERE xid >= %(xmax)s::xid8 AND id + 0 < %(below_id)s)
OR EXISTS (SELECT FROM {partition} WHERE xid = ANY (%(xip)s::xid8[]) AND id + 0 < %(below_id)s)
