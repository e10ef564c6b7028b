-- Adds the default segment, which takes the rows that belong to no other.
CREATE FUNCTION pubsub_add_default_segment_v1(parent regclass) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    child text := (SELECT format('%s.%I', relnamespace::regnamespace, relname || '_default')
                   FROM pg_class WHERE oid = parent);
BEGIN
    EXECUTE format('CREATE TABLE %s PARTITION OF %s DEFAULT', child, parent);
    PERFORM pubsub_complete_segment_v1(parent, child);
    IF (SELECT relname FROM pg_class WHERE oid = parent) = 'outbox_message_t' THEN
        EXECUTE format('CREATE TRIGGER outbox_message_t_own_id AFTER INSERT ON %s '
                       'FOR EACH ROW EXECUTE FUNCTION pubsub_refuse_id_v1()', child);
    END IF;
END
$$;
