"""Where files are kept that were fetched or made for Spark: of this user, and safe to delete."""

import os
import tempfile
from pathlib import Path


def cache_folder(name: str) -> Path:
    """A folder of ours in the user's cache; in the temporary files where the user has no home.

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
    # Named by user, and useless to others: what is in it gets executed.
    base = Path(tempfile.gettempdir()) / f"django-outbox-pubsub-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.stat().st_uid != os.getuid() or base.stat().st_mode & 0o022:
        raise PermissionError(f"{base} belongs to another user, or others may write to it. Set XDG_CACHE_HOME.")
    (base / name).mkdir(exist_ok=True)
    return base / name
