-- Ends the leases of a worker: under another epoch it can neither renew nor
-- acknowledge them, and the next worker takes them over as from one that has died. Returns how many.
WITH ended AS (
    UPDATE consumer_claims SET expires_at = clock_timestamp(), epoch = epoch + 1
    WHERE worker_id = %(worker_id)s AND expires_at > clock_timestamp()
    RETURNING 1
)
SELECT count(*) FROM ended
