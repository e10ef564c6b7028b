"""Tables for terminals: aligned, and no wider than there is room."""

import shutil
from collections.abc import Sequence

from pubsub.payloads.visible import visible

GAP = 2
NARROWEST = 6


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The lines of a table. A heading that ends in ">" has its column aligned to the right, and never cut.

    Where there is not enough room, the widest of the other columns are cut, which "…" shows.

    >>> for line in table(["name", "lag>"], [["orders.events", "7"], ["mail", "1,200"]], 18): print(line)
    name           lag
    orders.eve…      7
    mail         1,200
    """
    right = [heading.endswith(">") for heading in headings]
    texts = [[heading.removesuffix(">") for heading in headings], *rows]
    widths = [max(len(row[n]) for row in texts) for n in range(len(headings))]
    while sum(widths) + GAP * (len(widths) - 1) > width:
        n = max((n for n in range(len(widths)) if not right[n]), key=lambda n: widths[n], default=None)
        if n is None or widths[n] <= NARROWEST:
            break
        widths[n] -= 1
    return [
        (" " * GAP)
        .join(
            cut(text, widths[n]).rjust(widths[n]) if right[n] else cut(text, widths[n]).ljust(widths[n])
            for n, text in enumerate(row)
        )
        .rstrip()
        for row in texts
    ]


def cut(text: str, width: int) -> str:
    """A text in one line, at most this wide.

    >>> cut("SELECT 1", 5)
    'SELE…'
    """
    text = visible(" ".join(text.split()))
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def seconds(value: float | None) -> str:
    """A length of time, to about two figures.

    >>> seconds(0), seconds(0.42), seconds(75), seconds(7200), seconds(400000), seconds(None)
    ('0 s', '0.4 s', '75 s', '2 h', '4.6 d', '–')
    """
    if value is None:
        return "–"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if value < limit:
            number = value / unit
            return f"{number:.0f} {name}" if number >= 10 or number == int(number) else f"{number:.1f} {name}"
    return f"{value / 86400:.1f} d"


def bytes_of(value: float) -> str:
    """A size, with a unit.

    >>> bytes_of(512), bytes_of(20480), bytes_of(3 * 10**9)
    ('512 B', '20 kB', '3.0 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.1f} {unit}" if unit in ("MB", "GB") and value < 10 else f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def terminal_width() -> int:
    """Columns of the terminal; for a file or a pipe, a width that most people can read."""
    return shutil.get_terminal_size((120, 24)).columns
