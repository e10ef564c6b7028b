-- Whether the filters of groups want an event. {conditions} are the conditions of the filters.
SELECT {conditions} FROM outbox_message_t AS message WHERE message.id = %(id)s
