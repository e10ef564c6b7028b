-- Which of some events, delayed or not, pass a filter ({filter}). For tests, whose tables are small.
SELECT message.event_id FROM outbox_message_t AS message WHERE message.event_id = ANY (%(ids)s) AND ({filter})
UNION
SELECT message.event_id FROM outbox_delayed_message AS message WHERE message.event_id = ANY (%(ids)s) AND ({filter})
