"""What `manage.py check` says about this app."""

import difflib
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections

from .conf import KNOWN, conf
from .errors import InvalidSetting

OLDEST_POSTGRESQL = 150000


def check_settings(**kwargs: Any) -> list[CheckMessage]:
    given = getattr(settings, "PUBSUB", {})
    if not isinstance(given, dict):
        return [Error(f"PUBSUB must be a dict, not {type(given).__name__}.", id="pubsub.E001")]
    found: list[CheckMessage] = []
    for name in sorted(set(given) - KNOWN, key=str):
        nearest = difflib.get_close_matches(str(name), KNOWN, n=1)
        hint = f'Did you mean "{nearest[0]}"?' if nearest else f"Known are: {', '.join(sorted(KNOWN))}."
        found.append(Warning(f'PUBSUB has no setting "{name}".', hint=hint, id="pubsub.W001"))
    try:
        conf()
    except InvalidSetting as error:
        found.append(Error(str(error), id="pubsub.E002"))
    return found


def check_database(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Run by `migrate` and by `check --database ALIAS`."""
    found: list[CheckMessage] = []
    for alias in databases or []:
        connection = connections[alias]
        if connection.vendor != "postgresql":
            continue
        connection.ensure_connection()
        version = connection.connection.info.server_version
        if version < OLDEST_POSTGRESQL:
            found.append(
                Error(
                    f'PostgreSQL 15 or newer is needed; database "{alias}" runs version {version // 10000}.',
                    id="pubsub.E003",
                )
            )
    return found
