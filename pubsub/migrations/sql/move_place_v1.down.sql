DROP FUNCTION pubsub_move_place_v1(text, integer, integer, bigint, bigint, bigint, text);
