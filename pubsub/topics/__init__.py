"""Topics: found by name or by pattern, and the options of each."""
