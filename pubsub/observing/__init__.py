"""How everything stands, what is wrong, and who did what."""
