DROP FUNCTION pubsub_find_work_v1(text[], text[], integer[], text, integer);
