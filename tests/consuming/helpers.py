"""Places, letters and effects, as a test sees them; and processes that handle events until they are killed."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from django.db import connection, transaction

from pubsub import publish, publish_many
from pubsub.consuming.claims import ALIVE
from pubsub.consuming.leasing import Leaseholder
from pubsub.consuming.reading import Place
from pubsub.models import Claim, ConsumerLag, ConsumerOffset, DeadLetter, Topic
from pubsub.sequencing.numbering import sequence
from pubsub.sql import load
from pubsub.subscriptions.declaring import Declaration, enrol

from ..sequencing.helpers import (  # noqa: F401 - for the tests beside this
    Running,
    connection_parameters,
    database_url,
    wait_until,
)

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_S = 30


def topic_of(partitions: int = 1, name: str = "work") -> str:
    Topic.objects.create(name=name, total_partitions=partitions)
    return name


def publish_each(*payloads: Any, topic: str = "work", key: Any = "k", **options: Any) -> None:
    """Each in a transaction of its own."""
    for payload in payloads:
        with transaction.atomic():
            publish(topic, payload, key=key, **options)


def publish_together(*payloads: Any, topic: str = "work", key: Any = "k") -> None:
    with transaction.atomic():
        publish_many(topic, [{"payload": payload, "key": key} for payload in payloads])


def number() -> None:
    while sequence("default").messages:
        pass


def place_of(declaration: Declaration, partition: int = 0) -> Place:
    enrol([declaration], "default")
    topic = Topic.objects.get(name=declaration.topic)
    return Place(declared=declaration, topic_id=topic.pk, partition_id=partition, using="default")


def next_offset(group: str = "readers") -> int:
    return ConsumerOffset.objects.get(group_id=group).next_offset


def states() -> list[tuple[Any, str]]:
    return list(DeadLetter.objects.order_by("c_offset").values_list("payload", "state"))


def lag() -> int:
    return sum(ConsumerLag.objects.values_list("lag", flat=True))


def claims() -> list[tuple[int, int, int]]:
    return list(Claim.objects.values_list("first_offset", "last_offset", "attempts"))


def make_effects_table() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY, payload text, worker text)")


def drop_effects_table() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS effects")


def note(payload: Any) -> None:
    """An effect in the same database."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO effects (payload) VALUES (%s)", [json.dumps(payload)])


def effects() -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload FROM effects ORDER BY id")
        return [json.loads(payload) for (payload,) in cursor.fetchall()]


def look_for_work(declaration: Declaration, worker_id: str = "somebody") -> list[dict[str, Any]]:
    """What `find_work` tells a worker of that name."""
    with connection.cursor() as cursor:
        cursor.execute(
            load("find_work"),
            {
                "topics": [declaration.topic],
                "groups": [declaration.group],
                "partitions": None,
                "worker_id": worker_id,
                "family": ALIVE,
            },
        )
        columns = [column.name for column in cursor.description]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


@contextmanager
def leaseholder(name: str, lease_s: float = 30, *, renews: bool = True) -> Iterator[Leaseholder]:
    """What a worker process of that name has. One that does not renew is as if it stood still."""
    holder = Leaseholder(using="default", worker_id=name, lease_s=lease_s)
    if renews:
        holder.start()
    try:
        yield holder
    finally:
        holder.stop()


class Process:
    """A Python process of the project's on the test database. What it prints is read as it comes."""

    def __init__(
        self, command: Sequence[str], url: str | None = None, stderr: int = subprocess.STDOUT, **environment: str
    ) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env=os.environ
            | {"DATABASE_URL": url or database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings"}
            | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        self.lines: Queue[str] = Queue()
        self.said: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def wait_for(self, expected: str, seconds: float = PATIENCE_S) -> str:
        """Until it says something that begins like that."""
        while True:
            try:
                said = self.lines.get(timeout=seconds)
            except Empty:
                raise AssertionError(f"it has not said {expected!r} within {seconds} s, but {self.said}") from None
            self.said.append(said)
            if said.startswith(expected):
                return said

    def go_on(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self, seconds: float = PATIENCE_S) -> int:
        code = self.process.wait(seconds)
        self._reading.join(seconds)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._reading.join(5)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            stream.close()


@contextmanager
def consumer(
    handler: str,
    *options: Any,
    url: str | None = None,
    through: Sequence[str] = (),
    stderr: int = subprocess.STDOUT,
    **settings: Any,
) -> Iterator[Process]:
    """A process that runs one of the handlers of `process.py` as `run_consumer` would, started `through` another."""
    command = [sys.executable, "-m", "tests.consuming.process", handler, json.dumps(settings), *map(str, options)]
    process = Process([*through, *command], url, stderr)
    try:
        yield process
    finally:
        process.close()
