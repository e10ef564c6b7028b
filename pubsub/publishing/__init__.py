"""Publishing: an application's own rows, a model's changes, or what happens to a table, whichever program writes it."""
