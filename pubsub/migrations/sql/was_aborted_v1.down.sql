DROP FUNCTION pubsub_was_aborted_v1(xid);
