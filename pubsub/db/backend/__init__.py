"""Django's PostgreSQL backend, and what we need to know of transactions: ``ENGINE = "pubsub.db.backend"``."""
