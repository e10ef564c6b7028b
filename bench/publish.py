"""Publishing, beside the reference loop (a counter locked in each publisher's transaction) and a raw INSERT."""

import functools
import json
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import psycopg
from django.db import connections, transaction

from pubsub import publish, publish_many, publish_on_commit
from pubsub.db.connections import dedicated_connection
from pubsub.worker.leader import Leader

from .rounds import Contestant, Unit

TOPIC = "default"


def payload_of(size: int) -> dict[str, Any]:
    """A believable event of about so many bytes as JSON; the filling cannot be compressed away."""
    payload: dict[str, Any] = {"id": 1234567, "status": "placed", "total": "129.90", "text": ""}
    missing = size - len(json.dumps(payload))
    payload["text"] = random.Random(1).randbytes(max(missing, 0) // 2).hex()
    return payload


def contestants(*, using: str, batch: int, size: int, work_ms: float, alone: bool = False) -> list[Contestant]:
    """`alone`: events that belong to no transaction. Who need not open one for them does not."""
    block: Callable[[], AbstractContextManager[Any]]
    block = nullcontext if alone else functools.partial(transaction.atomic, using=using)
    payload = payload_of(size)
    text = json.dumps(payload)

    insert_one = "INSERT INTO pubsub_bench.raw (key, payload) VALUES (%s, %s)"
    insert_many = (
        "INSERT INTO pubsub_bench.raw (key, payload) "
        "SELECT key, payload::jsonb FROM unnest(%s::text[], %s::text[]) AS new (key, payload)"
    )

    def business() -> None:
        """What a publisher's transaction goes on with."""
        if work_ms:
            time.sleep(work_ms / 1000)

    def outbox() -> Unit:
        events = [{"payload": payload, "type": "order.placed", "key": str(n)} for n in range(batch)]

        def unit() -> int:
            with transaction.atomic(using=using):
                if batch == 1:
                    publish(TOPIC, payload, type="order.placed", key="1", using=using)
                else:
                    publish_many(TOPIC, events, using=using)
                business()
            return batch

        def unit_alone() -> int:
            publish_on_commit(TOPIC, payload, type="order.placed", key="1", using=using)
            return batch

        return unit_alone if alone else unit

    def locked_counter() -> Unit:
        connection = connections[using]
        reserve = (
            "UPDATE pubsub_bench.log_counter SET next_offset = next_offset + %s WHERE id = 1 RETURNING next_offset"
        )
        insert = (
            "INSERT INTO pubsub_bench.outbox (c_offset, key, transaction_id, payload) "
            "SELECT %s + n - 1, key, %s, payload::jsonb "
            "FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS new (key, payload, n)"
        )
        keys, texts = [str(n) for n in range(batch)], [text] * batch

        def unit() -> int:
            with transaction.atomic(using=using), connection.cursor() as cursor:
                cursor.execute(reserve, [batch])
                (after,) = cursor.fetchone()
                cursor.execute(insert, [after - batch, uuid.uuid4(), keys, texts])
                business()
            return batch

        return unit

    def django_insert() -> Unit:
        """The same as `raw`, as an application would write it: what Django's own transactions and cursors cost."""

        def unit() -> int:
            with block(), connections[using].cursor() as cursor:
                if batch == 1:
                    cursor.execute(insert_one, ["1", json.dumps(payload)])
                else:
                    cursor.execute(insert_many, [[str(n) for n in range(batch)], [json.dumps(payload)] * batch])
                business()
            return batch

        return unit

    def raw() -> Unit:
        connection = open_raw(using)
        keys, texts = [str(n) for n in range(batch)], [text] * batch
        block: Callable[[], AbstractContextManager[Any]] = nullcontext if alone else connection.transaction

        def unit() -> int:
            with block():
                if batch == 1:
                    connection.execute(insert_one, [keys[0], text])
                else:
                    connection.execute(insert_many, [keys, texts])
                business()
            return batch

        return unit

    def raw_copy() -> Unit:
        connection = open_raw(using)

        def unit() -> int:
            with (
                connection.transaction(),
                connection.cursor() as cursor,
                cursor.copy("COPY pubsub_bench.raw (key, payload) FROM STDIN") as copy,
            ):
                for n in range(batch):
                    copy.write_row((str(n), text))
            return batch

        return unit

    def sequencer(over: Any) -> None:
        with running_leader(using):
            over.wait()

    def listener(over: Any) -> None:
        with dedicated_connection(using) as connection:
            connection.execute("LISTEN pubsub_bench")
            while not over.is_set():
                for _ in connection.notifies(timeout=0.2):
                    pass

    return [
        Contestant(name="publish", prepare=outbox, beside=sequencer),
        Contestant(name="locked counter", prepare=locked_counter, beside=listener),
        Contestant(name="django insert", prepare=django_insert),
        Contestant(name="raw insert", prepare=raw),
        Contestant(name="raw copy", prepare=raw_copy),
    ]


@contextmanager
def running_leader(using: str) -> Iterator[Leader]:
    """What runs beside a worker, without the worker."""
    leader = Leader(using, 1.0)
    leader.start()
    try:
        yield leader
    finally:
        leader.stop()


def open_raw(using: str) -> psycopg.Connection[Any]:
    parameters = connections[using].get_connection_params()
    names = {"dbname", "host", "port", "user", "password"}
    return psycopg.connect(**{name: value for name, value in parameters.items() if name in names}, autocommit=True)
