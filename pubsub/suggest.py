"""What an error says about what was given: the nearest name that exists, or all of them; the value itself."""

import difflib
from collections.abc import Iterable
from typing import Any

from django.utils.translation import gettext as _

LONGEST_SHOWN = 200
"""Characters of a wrong value in an error."""


def nearest(given: object, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that was probably meant.

    >>> nearest("pyload", ["payload", "metadata"])
    'payload'
    """
    found = difflib.get_close_matches(str(given), list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def hint(given: object, known: Iterable[str]) -> str:
    """A sentence to end an error with.

    >>> hint("pyload", ["payload", "metadata"]), hint("total", ["payload", "metadata"])
    ('Did you mean "payload"?', 'There are: payload, metadata.')
    """
    known = list(known)
    if name := nearest(given, known):
        return _('Did you mean "%(nearest)s"?') % {"nearest": name}
    return _("There are: %(known)s.") % {"known": ", ".join(known) or _("none")}


def shown(value: Any) -> str:
    """A wrong value, for the error that refuses it: its beginning, whatever it is.

    >>> shown(10**5000)
    'a value of type int'
    """
    try:
        text = repr(value)
    except Exception:  # of a number with too many digits, of a list that is too deep, of anything that has its own
        return _("a value of type %(type)s") % {"type": type(value).__name__}
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
