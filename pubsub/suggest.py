"""What an error says about a name that does not exist: the nearest one that does, or all of them."""

import difflib
from collections.abc import Iterable

from django.utils.translation import gettext as _


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
