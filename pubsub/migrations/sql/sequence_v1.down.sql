DROP FUNCTION pubsub_sequence_v1();
