DROP FUNCTION pubsub_transaction_id_v1();
