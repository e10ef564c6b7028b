-- Dead letters of every state, with their topic's name.
SELECT letter.id, letter.group_id, topic.name COLLATE "C" AS topic, letter.partition_id, letter.c_offset,
       letter.event_id::text AS event_id, letter.transaction_id::text AS transaction_id, letter.type, letter.key,
       letter.host_id, letter.user_id, letter.payload::text AS payload, letter.metadata::text AS metadata,
       letter.original_payload::text AS original_payload, letter.published_at, letter.handler, letter.exception_class,
       letter.exception_message, letter.traceback, letter.attempts, letter.state, letter.next_attempt_at,
       letter.created_at, letter.updated_at
FROM dead_letter_queue AS letter JOIN outbox_topics AS topic ON topic.id = letter.topic_id
