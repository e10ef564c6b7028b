-- Refuses an event with an id that has not been given out: far ahead of all others, it would keep retention from ever making
-- a segment again.
--
-- Called for the rows of the default segment alone, where all such ids come to lie. With the owner's rights, as publishers
-- need none on the sequence.
CREATE FUNCTION pubsub_refuse_id_v1() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NEW.id > coalesce(pg_sequence_last_value(format('%I.outbox_message_t_id_seq', TG_TABLE_SCHEMA)::regclass), 0)
       AND current_setting('pubsub.loading', true) IS DISTINCT FROM 'on'
    THEN
        RAISE EXCEPTION 'id % has not been given out', NEW.id
            USING ERRCODE = 'check_violation', HINT = 'Leave the column id out: the database fills it.';
    END IF;
    RETURN NULL;
END
$$;
