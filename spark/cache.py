"""Where files fetched or made for Spark are kept: they belong to this user, and are safe to delete."""

import os
import tempfile
from pathlib import Path


def cache_folder(name: str) -> Path:
    """A folder of ours in the user's cache, or among the temporary files if the user has no home.

    >>> cache_folder("doctest").is_dir()
    True
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "django-outbox-pubsub"
    try:
        (base / name).mkdir(parents=True, exist_ok=True)
        if os.access(base / name, os.W_OK):
            return base / name
    except OSError:
        pass
    # Named after the user, and closed to others: what is in it gets executed.
    base = Path(tempfile.gettempdir()) / f"django-outbox-pubsub-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.stat().st_uid != os.getuid() or base.stat().st_mode & 0o022:
        raise PermissionError(f"{base} belongs to another user, or others may write to it. Set XDG_CACHE_HOME.")
    (base / name).mkdir(exist_ok=True)
    return base / name
