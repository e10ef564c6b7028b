-- Adds the segment [lower, upper) to outbox_message_t or log_entry and returns its name; null if it exists already.
--
-- It is made as a table of its own and then attached: CREATE … PARTITION OF would lock publishers out. The caller sets
-- lock_timeout.
CREATE FUNCTION pubsub_add_segment_v1(parent regclass, lower bigint, upper bigint) RETURNS text
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
    PERFORM pubsub_complete_segment_v1(parent, format('%s.%I', home, child));
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s.%I FOR VALUES FROM (%s) TO (%s)',
                   parent, home, child, lower, upper);
    RETURN child;
END
$$;
