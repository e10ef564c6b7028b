"""A topic with a group on it, and sessions that are gone before the tables are emptied."""

from tests.sequencing.conftest import new_session, other, session

__all__ = ["new_session", "other", "session"]
