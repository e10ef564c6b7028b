"""What operators do: topics are made, changed and removed, groups paused, moved and taken away.

Commands, the admin and `migrate` all come here. Each function says who acts (``actor``), on which database (``using``)
and, if anybody wants to know later, why (``reason``); each writes the journal in its own transaction; each that finds
nothing to change changes nothing and says so. To see what one would do, call it within :func:`rehearsal`.
"""

from .groups import GroupState, cancel, pause, remove_group, resume, subscriptions_of
from .rehearsing import rehearsal
from .resizing import resize_topic
from .seeking import Move, force_complete, preview_force_complete, preview_seek, seek
from .topics import configure_topic, create_topic, losses, remove_topic, sync_topics

__all__ = [
    "GroupState",
    "Move",
    "cancel",
    "configure_topic",
    "create_topic",
    "force_complete",
    "losses",
    "pause",
    "preview_force_complete",
    "preview_seek",
    "rehearsal",
    "remove_group",
    "remove_topic",
    "resize_topic",
    "resume",
    "seek",
    "subscriptions_of",
    "sync_topics",
]
