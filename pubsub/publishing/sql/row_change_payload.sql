-- The payload of a row's change, unless PublishRowChanges is given another one.
CASE WHEN published.old_row IS NULL THEN jsonb_build_object('new', published.new_row)
     WHEN published.new_row IS NULL THEN jsonb_build_object('old', published.old_row)
     ELSE jsonb_build_object('old', published.old_row, 'new', published.new_row, 'changed', (
         SELECT jsonb_agg(name ORDER BY name) FROM jsonb_each(published.new_row) AS field (name, value)
         WHERE value <> published.old_row -> name
     ))
END
