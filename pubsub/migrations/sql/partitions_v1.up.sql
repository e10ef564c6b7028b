-- Adds a partition for [lower, upper) to outbox_message_t or log_entry and says its name; null if there is one already.
-- A table of its own is made first and then attached: CREATE … PARTITION OF would lock publishers out. The caller
-- sets lock_timeout.
CREATE FUNCTION pubsub_add_partition_v1(parent regclass, lower bigint, upper bigint) RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    child text := (SELECT relname || '_' || lower FROM pg_class WHERE oid = parent);
    home text := (SELECT relnamespace::regnamespace FROM pg_class WHERE oid = parent);
BEGIN
    IF to_regclass(format('%s.%I', home, child)) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE format('CREATE TABLE %s.%I (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS)',
                   home, child, parent);
    PERFORM pubsub_complete_partition_v1(parent, format('%s.%I', home, child));
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s.%I FOR VALUES FROM (%s) TO (%s)',
                   parent, home, child, lower, upper);
    RETURN child;
END
$$;

-- Adds the default partition, which takes what no other does.
CREATE FUNCTION pubsub_add_default_partition_v1(parent regclass) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    child text := (SELECT format('%s.%I', relnamespace::regnamespace, relname || '_default')
                   FROM pg_class WHERE oid = parent);
BEGIN
    EXECUTE format('CREATE TABLE %s PARTITION OF %s DEFAULT', child, parent);
    PERFORM pubsub_complete_partition_v1(parent, child);
END
$$;

-- Gives a partition what it cannot inherit: log_entry's key, which does not hold the column that the table is cut by.
CREATE FUNCTION pubsub_complete_partition_v1(parent regclass, child regclass) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF (SELECT relname FROM pg_class WHERE oid = parent) = 'log_entry' THEN
        EXECUTE format('CREATE UNIQUE INDEX ON %s (topic_id, c_offset)', child);
    END IF;
END
$$;

SELECT pubsub_add_default_partition_v1('outbox_message_t');
SELECT pubsub_add_default_partition_v1('log_entry');
