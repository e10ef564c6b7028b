"""Topics: found by name or by pattern, and what each of them can be told."""
