ALTER TABLE log_counter RESET (fillfactor);
ALTER TABLE log_partition_counter RESET (fillfactor);
ALTER TABLE log_sequencer RESET (fillfactor);
ALTER TABLE consumer_offsets RESET (fillfactor);
