"""What is to be seen: a block that is drawn again each second in a terminal, a line every few seconds elsewhere."""

import contextlib
import io
import os
import shutil
import time
from collections import deque
from typing import TextIO

from .figures import Figures

LINE_EVERY_S = 5
RATE_OVER_S = 5

BOLD, DIM, GREEN, YELLOW = "1", "2", "32", "33"


class Display:
    """Writes to a terminal or a pipe: colours and redrawing only in a terminal, nothing once the reader has gone."""

    def __init__(self, stream: TextIO, *, coloured: bool = True) -> None:
        self._stream = stream
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # where the locale has no "…"
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._coloured = self._live and coloured and not os.environ.get("NO_COLOR")
        self._drawn = 0
        self._last_line = 0.0
        self._recent: deque[tuple[float, int, int]] = deque()

    def say(self, text: str = "", style: str = "") -> None:
        """Write a line that stays. What was drawn last stays above it."""
        self._drawn = 0
        self._write(self._styled(text, style) + "\n")

    def progress(self, status: str, hint: str, figures: Figures, placed: int, published: int) -> None:
        """Show how things stand; a line takes its time, a block comes at once."""
        now = time.monotonic()
        self._recent.append((now, placed, published))
        while now - self._recent[0][0] > RATE_OVER_S and len(self._recent) > 2:
            self._recent.popleft()
        if self._live:
            self._draw(self._block(status, hint, figures, placed, published))
        elif now - self._last_line >= LINE_EVERY_S:
            self._last_line = now
            self._write(_line(status, figures, placed, published) + "\n")

    def _block(self, status: str, hint: str, figures: Figures, placed: int, published: int) -> list[tuple[str, str]]:
        orders_rate, events_rate = self._rates()
        lines = [
            ("", ""),
            (f"  {'':<18}{'this run':>12}{'a second':>12}{'in all':>12}", DIM),
            (f"  {'orders placed':<18}{placed:>12,}{orders_rate:>12.1f}{figures.orders:>12,}", ""),
            (f"  {'events published':<18}{published:>12,}{events_rate:>12.1f}{figures.events:>12,}", ""),
            ("", ""),
            (f"  {'group':<18}{'passed':>12}{'behind':>12}{'retrying':>12}{'dead letters':>16}", DIM),
        ]
        for group in figures.groups:
            behind = "…" if group.behind is None else f"{group.behind:,}"
            text = f"  {group.name:<18}{group.passed:>12,}{behind:>12}{group.retrying:>12,}{group.dead:>16,}"
            lines.append((text, YELLOW if group.dead else "") if group.active else (f"{text}  paused", DIM))
        lines.append(("", ""))
        if any(group.dead for group in figures.groups):
            lines.append(
                (
                    "  Their addresses are being corrected: replay the dead letters in the admin.",
                    YELLOW,
                )
            )
        return [*lines, (f"  {status}   {hint}", "")]

    def _rates(self) -> tuple[float, float]:
        (before, orders, events), (now, more_orders, more_events) = self._recent[0], self._recent[-1]
        passed = max(now - before, 0.001)
        return (more_orders - orders) / passed, (more_events - events) / passed

    def _draw(self, lines: list[tuple[str, str]]) -> None:
        columns, rows = shutil.get_terminal_size()
        # What doesn't fit would wrap or scroll, and the cursor would not find its way back up.
        lines = lines[-max(1, rows - 2) :]
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        text = "".join(f"{self._styled(line[: columns - 1], style)}\x1b[K\n" for line, style in lines)
        self._write(f"{up}\r{text}\x1b[J")
        self._drawn = len(lines)

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if style and self._coloured else text

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # a pipe or a terminal that was closed is no reason to leave things lying about
            self._live = False
            with contextlib.suppress(OSError, ValueError):  # what is still in the buffer goes there as well
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def _line(status: str, figures: Figures, placed: int, published: int) -> str:
    behind = ", ".join(f"{group.name} {'…' if group.behind is None else group.behind}" for group in figures.groups)
    retrying, dead = (sum(getattr(group, name) for group in figures.groups) for name in ("retrying", "dead"))
    failed = f"retrying: {retrying}; dead letters: {dead}"
    return f"{status}: {placed:,} orders, {published:,} events; behind: {behind}; {failed}"
