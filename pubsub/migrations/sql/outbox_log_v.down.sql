DROP VIEW outbox_log_v;
