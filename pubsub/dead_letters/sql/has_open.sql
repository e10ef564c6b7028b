-- Whether failed events of a partition wait for another attempt, or for an operator.
SELECT EXISTS (
    SELECT FROM dead_letter_queue
    WHERE group_id = %(group_id)s AND topic_id = %(topic_id)s AND partition_id = %(partition_id)s
      AND state IN ('retrying', 'dead', 'parked')
)
