"""Publishing: an application's own rows, a model's changes, or what happens to a table whoever writes it."""
