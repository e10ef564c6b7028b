-- Ends the session in which a call is made, if it is still the same one: it began before the call. Returns whether that
-- shows to this role.
SELECT backend_start IS NOT NULL, CASE WHEN backend_start <= %(since)s THEN pg_terminate_backend(pid, 5000) END
FROM pg_stat_activity WHERE pid = %(pid)s AND datname = current_database()
