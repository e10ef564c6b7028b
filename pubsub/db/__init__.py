"""The only seam to the insides of Django and psycopg; statements, transactions, locks, the audit log."""
