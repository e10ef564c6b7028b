"""From Python to jsonb and back, in lines and for people's eyes: the values that travel in events."""
