DROP FUNCTION pubsub_add_default_partition_v1(regclass);
DROP FUNCTION pubsub_add_partition_v1(regclass, bigint, bigint);
DROP FUNCTION pubsub_complete_partition_v1(regclass, regclass);
