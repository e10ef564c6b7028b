"""Segments of the log: made ahead, noted when full, dropped when expired. And pruning of what is finished."""
