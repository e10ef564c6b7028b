"""Filters for the admin's pages: `{% load pubsub %}`."""
