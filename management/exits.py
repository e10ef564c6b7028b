"""Exit codes of the commands; 0 is done, or nothing to do."""

REFUSED, MISUSED, UNREACHABLE, IN_USE = 1, 2, 3, 4
"""Refused, or a limit is exceeded; misused; the database does not answer; a worker is at it now: try again shortly."""
