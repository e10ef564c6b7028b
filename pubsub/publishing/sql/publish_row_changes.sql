-- What pubsub.migration_operations.PublishRowChanges installs, once for each kind of statement. The pieces in braces come
-- from there, quoted.
--
-- Promises: one event for each row that a statement inserted, deleted or really changed, in the statement's own
-- transaction, whatever program wrote it. The function runs with its owner's rights, so that writers need none on the outbox.
-- Hence it runs nothing that others could have made: tables are named with their schemas, and whatever has no schema is
-- PostgreSQL's own, for pg_catalog alone is searched (functions and operators are never looked for in pg_temp, and stated
-- last it hides no table). Only its owner may use it in a trigger. The other settings make a row look the same whatever
-- the writer's session prefers.
CREATE FUNCTION {function}() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET datestyle = 'ISO'
SET intervalstyle = 'iso_8601'
SET bytea_output = 'hex'
SET extra_float_digits = 1
AS {tag}
#variable_conflict use_column
DECLARE
    topic_number integer;
BEGIN
    IF NOT EXISTS (SELECT FROM {touched}) THEN
        RETURN NULL;
    END IF;
    SELECT id INTO topic_number FROM {outbox}.outbox_topics WHERE name = {topic};
    IF NOT FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'undefined_object',
            MESSAGE = format('There is no topic "%s", to which the changes of %s are published.', {topic}, {table_text}),
            HINT = 'Declare it in PUBSUB["topics"] and run migrate, add it in the admin, or migrate back what publishes.';
    END IF;
    INSERT INTO {outbox}.outbox_message_t (topic_id, type, key, host_id, payload)
    SELECT topic_number, {type_prefix} || '.' || kind, key, host_id, payload
    FROM (
        {changes}
    ) AS change
    WHERE payload IS NOT NULL
    -- Of a row whose primary key has changed, the deletion comes before the insertion.
    ORDER BY kind;
    RETURN NULL;
END
{tag};
REVOKE EXECUTE ON FUNCTION {function}() FROM PUBLIC;
CREATE TRIGGER {name} AFTER {event} ON {table} REFERENCING {transition_tables}
FOR EACH STATEMENT EXECUTE FUNCTION {function}();
