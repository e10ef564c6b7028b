DROP FUNCTION pubsub_lock_place_v1(text, integer, integer);
