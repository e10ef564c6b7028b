"""What people do with events that failed: choose, look, repair, replay, give up."""

from .actions import DISCARD, REPLAY, apply_in_batches, discard, preview, replay
from .edit import edit_and_replay
from .filter import LetterFilter

__all__ = ["DISCARD", "REPLAY", "LetterFilter", "apply_in_batches", "discard", "edit_and_replay", "preview", "replay"]
