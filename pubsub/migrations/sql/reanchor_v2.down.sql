DROP FUNCTION pubsub_reanchor_v2();
