"""Keeping house: storage made ahead and taken away, groups watched, history limited, on its own."""
