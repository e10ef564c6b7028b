"""Subscriptions: handlers declared in code, and filters that the database evaluates."""
