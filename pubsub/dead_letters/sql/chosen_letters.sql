-- What an operator has chosen among the dead letters, and the units that it belongs to: the events of a publisher's
-- transaction, as far as they went to one partition, failed together and go together. This is the beginning of
-- change_state.sql, preview_letters.sql and count_letters.sql; a parameter that is null asks for nothing. {visible} is
-- the condition that holds for the letters that the operator may see. A letter whose next attempt is due already is as a
-- replay would make it, and perhaps in a worker's hands: it is left alone.
WITH chosen AS (
    SELECT id, group_id, topic_id, partition_id, transaction_id
    FROM dead_letter_queue
    WHERE state = ANY (%(chosen_states)s::text[])
      AND {visible}
      AND NOT (state = %(becomes)s::text AND next_attempt_at <= clock_timestamp())
      AND (%(ids)s::bigint[] IS NULL OR id = ANY (%(ids)s::bigint[]))
      AND (%(after)s::bigint IS NULL OR id > %(after)s::bigint)
      AND (%(up_to)s::bigint IS NULL OR id <= %(up_to)s::bigint)
      AND (%(group)s::text IS NULL OR group_id = %(group)s::text)
      AND (%(topic_id)s::integer IS NULL OR topic_id = %(topic_id)s::integer)
      AND (%(type)s::text IS NULL OR type = %(type)s::text)
      AND (%(exception)s::text IS NULL OR exception_class = %(exception)s::text)
      AND (%(key)s::text IS NULL OR key = %(key)s::text)
      AND (%(host)s::text IS NULL OR host_id = %(host)s::text)
      AND (%(transaction)s::uuid IS NULL OR transaction_id = %(transaction)s::uuid)
      AND (%(event)s::uuid IS NULL OR event_id = %(event)s::uuid)
      AND (%(search)s::text IS NULL OR key = %(search)s::text OR host_id = %(search)s::text
           OR event_id = %(search_id)s::uuid OR transaction_id = %(search_id)s::uuid)
      AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
      AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s::timestamptz)
    ORDER BY id
    LIMIT %(limit)s::bigint
), unit AS (
    SELECT DISTINCT group_id, topic_id, partition_id, transaction_id FROM chosen
)
