"""Cursors, dead letters and effects, as a test sees them; and processes that handle events until they are killed."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection, transaction

from pubsub import publish, publish_many
from pubsub.consuming.crashes import CrashCounter
from pubsub.consuming.find_work import Work, WorkFinder
from pubsub.consuming.lease import HeldLease
from pubsub.consuming.lease_renewer import LeaseRenewer
from pubsub.consuming.leased import Leased
from pubsub.consuming.mode import Allowance, Outcome, WorkerContext
from pubsub.consuming.modes import MODES
from pubsub.consuming.session import PartitionSession
from pubsub.consuming.transactional import handle_batch
from pubsub.models import ConsumerLag, ConsumerOffset, DeadLetter, Lease, Topic
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import register_subscription
from pubsub.subscriptions.task import PartitionTask
from tests.processes import Process
from tests.sessions import connection_parameters


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


def task_of(declaration: Declaration, partition: int = 0) -> PartitionTask:
    register_subscription(declaration, using="default")
    topic = Topic.objects.get(name=declaration.topic)
    return PartitionTask(declared=declaration, topic_id=topic.pk, partition_id=partition, using="default")


def next_offset(group: str = "readers") -> int:
    return ConsumerOffset.objects.get(group_id=group).next_offset


def states() -> list[tuple[Any, str]]:
    return list(DeadLetter.objects.order_by("c_offset").values_list("payload", "state"))


def lag() -> int:
    return sum(ConsumerLag.objects.values_list("lag", flat=True))


def claims() -> list[tuple[int, int, int]]:
    return list(Lease.objects.values_list("first_offset", "last_offset", "attempts"))


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


def fail_as(state: str) -> None:
    """The database that the worker works on fails under its handler, in PostgreSQL's words."""
    with connection.cursor() as cursor:
        cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION 'failed as {state}' USING ERRCODE = '{state}'; END $$")


def cut_off() -> None:
    """The connection that the worker works on is cut, and the handler sees it."""
    with psycopg.connect(**connection_parameters(), autocommit=True) as operator:
        operator.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.connection.info.backend_pid])
    connection.cursor().execute("SELECT 1")


def look_for_work(declaration: Declaration, worker_id: str = "another") -> list[Work]:
    """What a worker of that name finds to do."""
    return WorkFinder({declaration.key: declaration}, using="default", worker_id=worker_id).find()


def consume(task: PartitionTask, size: int, counter: CrashCounter | None = None) -> Outcome:
    """A batch in a transaction."""
    with PartitionSession(task, size) as session:
        return handle_batch(session, size, counter)


class Leaseholder:
    """What a worker process has to handle events under leases."""

    def __init__(self, context: WorkerContext) -> None:
        self.context = context
        self.leases = context.leases

    def mode(self, task: PartitionTask) -> Leased:
        mode = MODES[task.declared.delivery](self.context)
        assert isinstance(mode, Leased)
        return mode

    def consume(self, task: PartitionTask, size: int) -> Outcome:
        """A batch under a lease."""
        return self._work_on(task, size, has_new=True)

    def retry_due(self, task: PartitionTask, *, at_once: int) -> int:
        return self._work_on(task, at_once, has_due=True).retried

    def take(self, task: PartitionTask, size: int) -> HeldLease | None:
        """A lease, of which it then makes nothing."""
        return self.mode(task).take(task, size)

    def _work_on(self, task: PartitionTask, size: int, *, has_new: bool = False, has_due: bool = False) -> Outcome:
        work = Work(task=task, has_new=has_new, has_due=has_due, crashed=False, is_leased=False)
        (outcome,) = self.mode(task).work_on(work, Allowance(batch_size=size, size=size))
        return outcome


@contextmanager
def leaseholder(name: str, lease_s: float = 30, *, renews: bool = True) -> Iterator[Leaseholder]:
    """One that does not renew is as if it stood still."""
    leases = LeaseRenewer(using="default", lease_s=lease_s)
    if renews:
        leases.start()
    try:
        yield Leaseholder(WorkerContext(using="default", worker_id=name, leases=leases))
    finally:
        leases.stop()


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
