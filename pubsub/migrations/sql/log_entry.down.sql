DROP TABLE log_entry;
