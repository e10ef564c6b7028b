"""Reading the log without being a group: listeners in memory, and following a topic in the terminal."""
