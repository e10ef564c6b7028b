-- The rows that a statement has changed, as events. The pieces in braces come from row_changes.py, quoted.
-- A row that does not exist, such as the old one of an insert, is all null here, and null as jsonb.
SELECT {kind} AS kind, {key} AS key, {host_id} AS host_id, {payload} AS payload
FROM {rows}
CROSS JOIN LATERAL (SELECT {new_row} AS new_row, {old_row} AS old_row OFFSET 0) AS published
WHERE published.new_row IS DISTINCT FROM published.old_row AND ({condition})
