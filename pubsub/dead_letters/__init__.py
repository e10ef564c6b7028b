"""What people do with events that failed: choose, look, repair, replay, give up."""

from .choosing import Matching
from .repairing import edit_and_replay
from .verbs import DISCARD, REPLAY, act_in_batches, discard, preview, replay

__all__ = ["DISCARD", "REPLAY", "Matching", "act_in_batches", "discard", "edit_and_replay", "preview", "replay"]
