-- Takes an attempt back that was counted before it was made: the worker has not died of it.
UPDATE consumer_claims SET attempts = attempts - 1
WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
  AND worker_id = %(worker_id)s AND attempts = %(attempts)s
