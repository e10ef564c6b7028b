"""Exit codes of the commands; 0 is done, or nothing to do."""

REFUSED, MISUSED = 1, 2
