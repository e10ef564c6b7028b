DROP FUNCTION pubsub_unfinished_v1(pg_snapshot);
