"""What operators do: create, change and remove topics; pause, move and remove groups.

The commands, the admin and `migrate` all call these functions. Each takes who acts (``actor``), on which database
(``using``) and why (``reason``), and writes the audit log in its own transaction. If there is nothing to change, the
result says so. To see what a function would do, call it within :func:`dry_run`.
"""

from .dry_run import dry_run
from .groups import GroupState, cancel, pause, remove_group, resume, subscriptions_of
from .rename import Renamed, rename_group
from .resize import resize_topic
from .seek import CursorMove, force_complete, preview_force_complete, preview_seek, seek
from .skip import Skip, preview_skip, skip_event
from .topics import configure_topic, create_topic, losses, remove_topic, sync_topics
from .workers import WorkerStop, preview_stop, stop_worker

__all__ = [
    "CursorMove",
    "GroupState",
    "Renamed",
    "Skip",
    "WorkerStop",
    "cancel",
    "configure_topic",
    "create_topic",
    "dry_run",
    "force_complete",
    "losses",
    "pause",
    "preview_force_complete",
    "preview_seek",
    "preview_skip",
    "preview_stop",
    "remove_group",
    "remove_topic",
    "rename_group",
    "resize_topic",
    "resume",
    "seek",
    "skip_event",
    "stop_worker",
    "subscriptions_of",
    "sync_topics",
]
