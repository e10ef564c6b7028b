DROP FUNCTION pubsub_read_v1(integer, integer, text, bigint, bigint, integer);
