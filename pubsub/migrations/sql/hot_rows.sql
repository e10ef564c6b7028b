-- Small tables whose few rows change all the time: room on the page lets each change stay there, off the indexes.
ALTER TABLE log_counter SET (fillfactor = 10);
ALTER TABLE log_partition_counter SET (fillfactor = 10);
ALTER TABLE log_sequencer SET (fillfactor = 10);
ALTER TABLE consumer_offsets SET (fillfactor = 10);
