DROP FUNCTION pubsub_place_at_v1(integer, integer, bigint);
