DROP FUNCTION pubsub_publish_v1(uuid, integer, text, text, text, text, text, jsonb, jsonb);
