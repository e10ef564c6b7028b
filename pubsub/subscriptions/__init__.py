"""Who wants to hear what: handlers declared in code, and filters that the database evaluates."""
