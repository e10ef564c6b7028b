"""How everything stands, what is wrong, and how it was."""
