-- Forgets how often the database has failed in a partition, where that is settled: the events were set aside.
UPDATE consumer_offsets SET failing_offset = NULL, failures = 0, failing_s = 0, rests_until = NULL
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
