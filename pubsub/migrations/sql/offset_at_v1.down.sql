DROP FUNCTION pubsub_offset_at_v1(integer, timestamptz, interval);
