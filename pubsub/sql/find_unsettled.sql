-- Whether a partition of messages, whose name comes into the braces, holds one before an id that has not been numbered.
-- The caller keeps publishers out. The sum keeps the planner from walking along the ids: these are all but a few
-- numbered, and whoever publishes waits meanwhile.
EXISTS (SELECT FROM {partition} WHERE xid >= %(xmax)s::xid8 AND id + 0 < %(bound)s)
OR EXISTS (SELECT FROM {partition} WHERE xid = ANY (%(xip)s::xid8[]) AND id + 0 < %(bound)s)
