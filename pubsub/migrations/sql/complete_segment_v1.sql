-- Gives a segment what it cannot inherit: log_entry's key, which does not include the column that the table is cut by.
CREATE FUNCTION pubsub_complete_segment_v1(parent regclass, child regclass) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF (SELECT relname FROM pg_class WHERE oid = parent) = 'log_entry' THEN
        EXECUTE format('CREATE UNIQUE INDEX ON %s (topic_id, c_offset)', child);
    END IF;
END
$$;
