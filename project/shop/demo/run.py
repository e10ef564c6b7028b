"""A demo from its first second to its last: open, watch, close, drain, audit."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, connections

from project.embedded_postgres import using_server

from .audit import Missing, count_dead_letters, find_missing, find_surprises
from .display import BOLD, DIM, GREEN, YELLOW, Display
from .figures import Figures, read_figures
from .prepare import LOGIN, ensure_login, prepare_database
from .processes import Children, listen
from .traffic import Traffic, correct_refused_addresses

CONSUMERS = 2
DRAIN_S = 20
# An event without an offset is in no group's lag, so a lag of 0 proves little for as long as a consumer may sleep.
QUIET_S = 5
TICK_S = 0.2
SAME_SIGNAL_S = 0.5
SHOWN_AT_MOST = 10


class Demo:
    """One run. `run()` returns what went wrong: nothing, if all is well."""

    def __init__(self, *, seconds: float | None, port: int | None, rate: float, display: Display) -> None:
        self.seconds = seconds
        self.port = port
        self.traffic = Traffic(rate)
        self.display = display
        self.figures: Figures | None = None
        self._begun = time.monotonic()
        self._drawn = self._stopped = 0.0
        self._stopping = threading.Event()
        self._hurrying = threading.Event()

    def run(self) -> list[str]:
        """Keep shop until the time is over, or until a signal. A second signal doesn't wait for the consumers."""
        with ExitStack() as cleanup:
            cleanup.enter_context(self._signals_handled())
            listener = cleanup.enter_context(listen(self.port))
            port = listener.getsockname()[1]
            logs = settings.LOCAL / "logs" / f"demo-{port}"
            logs.mkdir(parents=True, exist_ok=True)
            cleanup.enter_context(_logging_to(logs / "demo.log"))
            if not os.environ.get("DATABASE_URL"):
                cleanup.enter_context(using_server())
            cleanup.callback(connections.close_all)
            prepare_database()
            children = Children(logs)
            cleanup.callback(children.stop)
            children.start_web(listener)
            for number in range(CONSUMERS):
                children.start_consumer(f"consumer-{number + 1}")
            self._welcome(port, ensure_login(settings.LOCAL / "demo_password"), logs)
            cleanup.callback(self.traffic.stop)
            self._begun = time.monotonic()
            self.traffic.start()
            faults = self._keep_shop(children)
            self.traffic.stop()
            if not faults:
                faults = self._close(children)
            children.stop()
            return faults

    def _welcome(self, port: int, password: str, logs: Path) -> None:
        self.display.say()
        self.display.say(f"  The demo shop is open: http://127.0.0.1:{port}/admin/", BOLD)
        self.display.say(f"  Log in as {LOGIN}, password {password}")
        shown = logs.relative_to(settings.BASE_DIR) if logs.is_relative_to(settings.BASE_DIR) else logs
        self.display.say(f"  {CONSUMERS} consumers and a web server are at work; they write to {shown}/", DIM)

    def _keep_shop(self, children: Children) -> list[str]:
        while not self._stopping.wait(TICK_S):
            if dead := children.dead():
                return [dead]
            if self.traffic.fault:
                break
            passed = time.monotonic() - self._begun
            if self.seconds and passed >= self.seconds:
                break
            until = f" of {_clock(self.seconds)}" if self.seconds else ""
            self._show(f"{_clock(passed)}{until}", "Ctrl-C closes the shop")
        return []

    def _close(self, children: Children) -> list[str]:
        """Let the consumers finish, look whether all is there, and say so."""
        if self.traffic.fault:
            logging.getLogger(__name__).error("placing orders failed", exc_info=self.traffic.fault)
            return [f"Placing orders failed: {self.traffic.fault!r}. The traceback is in demo.log, beside the others."]
        placed = self.traffic.placed
        passed_before = self.figures.passed if self.figures else 0
        missing: list[Missing] | None = None
        deadline = time.monotonic() + DRAIN_S
        quiet_since = None
        while not self._hurrying.is_set() and time.monotonic() < deadline:
            if dead := children.dead():
                return [dead]
            self._show("closing", "no more orders; the consumers finish what is there")
            try:
                figures = read_figures()
                found = find_missing(placed if missing is None else {each.order_id for each in missing})
                inactive = {group.name for group in figures.groups if not group.active}
                missing = [each for each in found if each.group not in inactive]
            except (OperationalError, InterfaceError):
                connection.close()
                quiet_since = None
            else:
                quiet_since = (quiet_since or time.monotonic()) if figures.idle else None
                if quiet_since and (not missing or time.monotonic() - quiet_since > QUIET_S):
                    break
                if not missing and time.monotonic() > deadline - DRAIN_S + QUIET_S:
                    break  # what is still to be done is another demo's
            self._hurrying.wait(TICK_S)
        return self._summarise(missing, quiet_since is not None, passed_before)

    def _summarise(self, missing: list[Missing] | None, quiet: bool, passed_before: int) -> list[str]:
        try:
            correct_refused_addresses()
            figures = read_figures()
            dead_letters = count_dead_letters(self.traffic.placed)
            surprises = find_surprises(self.traffic.placed)
        except (OperationalError, InterfaceError) as error:
            return [f"The database went away before the orders could be looked at: {error}"]
        self._show("closed", "", figures)
        placed, published = len(self.traffic.placed), self.traffic.events
        self.display.say()
        self.display.say(f"  Closed. This run: {placed:,} orders, {published:,} events.", BOLD)
        self.display.say(f"  All runs together: {figures.orders:,} orders, {figures.events:,} events.")
        faults = surprises[:SHOWN_AT_MOST]
        if missing == []:
            but = f", or among the {dead_letters} that failed on purpose" if dead_letters else ""
            self.display.say(f"  Checked {placed:,} orders: all their emails, sales, stock movements and", GREEN)
            self.display.say(f"  shipments are there exactly once{but}.", GREEN)
            for group in figures.groups:
                if not group.active:
                    self.display.say(f"  Not so those of {group.name}, which is paused: they will follow.", YELLOW)
        elif missing and quiet:
            faults += [
                f"Inconsistent: {len(missing)} missing, though their groups have nothing left to do and no dead letter "
                "tells why:",
                *(f"    {each}" for each in missing[:SHOWN_AT_MOST]),
            ]
        elif self._hurrying.is_set() or figures.passed > passed_before:
            behind = ", ".join(f"{group.name} {group.behind or 0:,}" for group in figures.groups)
            self.display.say(
                f"  The consumers were not done yet: the next run goes on there. Behind: {behind}.", YELLOW
            )
        else:
            faults.append(f"The consumers passed nothing within {DRAIN_S} s, though there was something to do.")
        return faults

    def _show(self, status: str, hint: str, figures: Figures | None = None) -> None:
        """Draw, once a second at most; at once where the figures are given."""
        if figures is None:
            if time.monotonic() - self._drawn < 1:
                return
            self._drawn = time.monotonic()
            try:
                figures = read_figures()
            except (OperationalError, InterfaceError) as error:
                connection.close()
                if self.figures is None:
                    return
                figures, hint = self.figures, f"the database doesn't answer: {' '.join(str(error).split())}"
        self.figures = figures
        self.display.progress(status, hint, figures, len(self.traffic.placed), self.traffic.events)

    @contextmanager
    def _signals_handled(self) -> Iterator[None]:
        def stop(number: int, frame: Any) -> None:
            if not self._stopping.is_set():
                self._stopping.set()
                self._stopped = time.monotonic()
            # Ctrl-C in a terminal may arrive twice: from it, and from a wrapper that passes on what it got.
            elif time.monotonic() - self._stopped > SAME_SIGNAL_S:
                self._hurrying.set()

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = [signal.signal(number, stop) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Keep the log off the terminal: the figures are there."""
    root = logging.getLogger()
    before = root.handlers
    handler = logging.FileHandler(path, mode="w")
    handler.setFormatter(before[0].formatter if before else None)
    root.handlers = [handler]
    try:
        yield
    finally:
        root.handlers = before
        handler.close()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
