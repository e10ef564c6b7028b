DROP FUNCTION pubsub_pass_resizes_v1(text[], text[]);
