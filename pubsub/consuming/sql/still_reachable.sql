-- Fails where a handler has made the tables unreachable for the rest of the transaction, or has become a role that may
-- not write to them. The row is locked already.
SELECT FROM consumer_offsets
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
FOR UPDATE
