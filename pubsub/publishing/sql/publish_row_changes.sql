-- What pubsub.migration_operations.PublishRowChanges installs, once for each kind of statement. The pieces in braces come
-- from there, quoted.
--
-- Promises: one event for each row that a statement inserted, deleted or really changed, in the statement's own
-- transaction, whatever program wrote it. The function runs with its owner's rights, so that writers need none on the outbox;
-- hence the fixed search_path, and hence only its owner may use it in a trigger. The other settings make a row look the
-- same whatever the writer's session prefers.
CREATE OR REPLACE FUNCTION {name}() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = {search_path}
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
    SELECT id INTO topic_number FROM outbox_topics WHERE name = {topic};
    IF NOT FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'undefined_object',
            MESSAGE = format('There is no topic "%s", to which the changes of %s are published.', {topic}, {table_text}),
            HINT = 'Declare it in PUBSUB["topics"] and run migrate, add it in the admin, or migrate back what publishes.';
    END IF;
    -- A row that does not exist, such as the old one of an insert, is all null here, and null as jsonb.
    INSERT INTO outbox_message_t (topic_id, type, key, host_id, payload)
    SELECT topic_number, {type_prefix} || '.' || kind, key, host_id, payload
    FROM (
        SELECT {kind} AS kind, {key} AS key, {host_id} AS host_id, {payload} AS payload
        FROM {rows}
        CROSS JOIN LATERAL (SELECT {new_row} AS new_row, {old_row} AS old_row OFFSET 0) AS published
        WHERE published.new_row IS DISTINCT FROM published.old_row AND ({condition})
    ) AS change
    WHERE payload IS NOT NULL
    -- Of a row whose primary key has changed, the deletion comes before the insertion.
    ORDER BY kind;
    RETURN NULL;
END
{tag};
REVOKE EXECUTE ON FUNCTION {name}() FROM PUBLIC;
CREATE OR REPLACE TRIGGER {name} AFTER {event} ON {table} REFERENCING {transition_tables}
FOR EACH STATEMENT EXECUTE FUNCTION {name}();
