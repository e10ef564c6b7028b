-- Ends the epoch of a cursor: acknowledgements under a lease of before are rejected. The caller has the cursor's lock.
UPDATE consumer_offsets SET epoch = epoch + 1
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
