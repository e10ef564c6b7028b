-- From now on the failed events of a partition up to an offset are tried one transaction at a time. The caller has the
-- cursor's lock.
UPDATE consumer_offsets SET alone_to = greatest(alone_to, %(offset)s)
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
