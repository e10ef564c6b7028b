"""A consumer in a process of its own: `python -m tests.consuming.process HANDLER SETTINGS [option of run_consumer …]`.

Handlers write what they did into the table `effects`, and print it.
"""

import gc
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402

from pubsub import Backoff, Delivery, Event, subscribe  # noqa: E402

settings = json.loads(sys.argv[2])
HANG_AT = "hang"
KILL_AT = ("kill", "exit")


def tell(*words: Any) -> None:
    print(*words, flush=True)


def note(event: Event) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO effects (payload, worker) VALUES (%s, %s)", [json.dumps(event.payload), str(os.getpid())]
        )


def say(event: Event) -> None:
    tell("handled", json.dumps(event.payload), event.attempt)


def plain(event: Event) -> None:
    note(event)
    say(event)


def fatal(event: Event) -> None:
    """Notes, then dies if the payload says so."""
    note(event)
    tell("begins", json.dumps(event.payload), event.attempt)
    if event.payload == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if event.payload == "exit":
        os._exit(7)


def hanging(event: Event) -> None:
    tell("begins", json.dumps(event.payload))
    note(event)
    while event.payload == HANG_AT:
        signal.pause()


def hungry(event: Event) -> None:
    if event.payload == "eat":
        resource.setrlimit(resource.RLIMIT_AS, (settings["bytes"], settings["bytes"]))
        eaten = []
        while True:
            eaten.append(bytearray(10_000_000))
    note(event)


def slow(event: Event) -> None:
    """Says when it begins, and continues on input."""
    tell("begins", json.dumps(event.payload), event.attempt)
    note(event)
    sys.stdin.readline()
    tell("continues", json.dumps(event.payload))


def forking(event: Event) -> None:
    """Its child comes back from the handler as well, or leaves it in another way."""
    if event.payload == "forks":
        if child := os.fork():
            os.waitpid(child, 0)
        elif settings["way"] == "raises":
            raise ValueError("in the child")
        else:
            return sys.exit(0) if settings["way"] == "exits" else None
    note(event)
    say(event)


def leaving(event: Event) -> None:
    """Raises what would end a program."""
    if event.payload == "leave":
        raise {"KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit}[settings["by"]]
    note(event)


def asking(event: Event) -> None:
    """Says when it begins, and asks the database when it gets a line."""
    tell("begins", json.dumps(event.payload), event.attempt)
    sys.stdin.readline()
    connection.cursor().execute("SELECT 1")


def hoarding(event: Event) -> None:
    """Takes all the locks that the server has."""
    if event.payload == "hoard":
        tell("hoards")
        connection.cursor().execute("SELECT pg_advisory_xact_lock(n) FROM generate_series(1, 10000000) AS n")
    note(event)


def killing(event: Event) -> None:
    """Kills the server's process that works for it, as the kernel does where memory is short."""
    note(event)
    if event.payload == "kill":
        tell("kills")
        os.kill(connection.connection.info.backend_pid, signal.SIGKILL)
        connection.cursor().execute("SELECT 1")


def counting(event: Event) -> None:
    pass


def collecting(event: Event) -> None:
    """Says how much the garbage collector walks through, and how much it leaves alone."""
    tell("walked", len(gc.get_objects()), gc.get_freeze_count())


HANDLERS = (plain, fatal, hanging, hungry, slow, forking, leaving, asking, hoarding, killing, counting, collecting)
handlers: dict[str, Callable[[Event], Any]] = {each.__name__: each for each in HANDLERS}
retry = settings.get("retry", [])
subscribe(
    settings.get("topic", "work"),
    group=settings.get("group", "readers"),
    start="earliest",
    delivery=Delivery(settings.get("delivery", "transactional")),
    on_failure=settings.get("on_failure", "dead_letter"),
    where=settings.get("where"),
    retry=Backoff(**retry) if isinstance(retry, dict) else retry,
)(handlers[sys.argv[1]])

if chosen := {name: settings[name] for name in ("lease_s", "transient_attempts") if name in settings}:
    from django.test import override_settings

    override_settings(PUBSUB=chosen).enable()
options = ["--topic", settings.get("topic", "work"), "--group", settings.get("group", "readers"), *sys.argv[3:]]
try:
    call_command("run_consumer", *options)
finally:
    # Not getrusage(), in which the process that this one was forked from counts, too.
    status = Path("/proc/self/status").read_text()
    tell("peak_kb", re.search(r"VmHWM:\s+(\d+) kB", status)[1])
