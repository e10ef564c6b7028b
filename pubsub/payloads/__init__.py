"""The values that travel in events: from Python to jsonb and back, as lines of text, and as shown to people."""
