-- Which of some events, delayed or not, a filter chooses ({chosen} stands for it). For tests, whose tables are small.
SELECT message.event_id FROM outbox_message_t AS message WHERE message.event_id = ANY (%(ids)s) AND ({chosen})
UNION
SELECT message.event_id FROM outbox_delayed_message AS message WHERE message.event_id = ANY (%(ids)s) AND ({chosen})
