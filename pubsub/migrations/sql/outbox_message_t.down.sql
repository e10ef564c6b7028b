DROP TABLE outbox_message_t;
