-- The payload of a row's change, unless PublishRowChanges is given another one.
CASE WHEN old_row IS NULL THEN jsonb_build_object('new', new_row)
     WHEN new_row IS NULL THEN jsonb_build_object('old', old_row)
     ELSE jsonb_build_object('old', old_row, 'new', new_row, 'changed', (
         SELECT jsonb_agg(name ORDER BY name) FROM jsonb_each(new_row) AS field (name, value)
         WHERE value <> old_row -> name
     ))
END
