"""Writers and sequencers that are meant to be killed: `python -m tests.sequencing.workload writer|sequencer URL …`.

A writer notes each transaction in a file: before its commit what it is about to commit, afterwards that it has. What
was noted as committed must be in the log, what was only intended may be, all of it or nothing.
"""

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

INSERT = (
    "INSERT INTO outbox_message_t (topic_id, key, payload)"
    " VALUES (%s, %s, jsonb_build_object('n', %s::text, 'pad', %s::text))"
)


class Writer:
    def __init__(self, url: str, notes: Path, number: int, seed: int, topics: list[int]) -> None:
        self.url = url
        self.number = number
        self.topics = topics
        self.random = random.Random(seed)
        self.notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.count = 0

    def run(self) -> None:
        while True:
            try:
                with psycopg.connect(self.url, autocommit=True, application_name="workload") as connection:
                    while True:
                        self.count += 1
                        try:
                            self.transaction(connection)
                        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                            connection.execute("ROLLBACK")
            except psycopg.OperationalError:
                time.sleep(0.02)  # the server is being restarted

    def transaction(self, connection: psycopg.Connection[Any]) -> None:
        choose = self.random.random
        connection.execute("BEGIN")
        if choose() < 0.3:
            connection.execute("SELECT pg_current_xact_id()")  # older than its first event
            connection.execute("SELECT pg_sleep(%s)", [choose() * 0.01])
        first = time.monotonic()
        kept: list[str] = []
        for n in range(self.random.choice([1, 1, 1, 2, 3, 8, 30])):
            undo = choose() < 0.15
            if undo or choose() < 0.15:
                connection.execute("SAVEPOINT one")
            name = f"{self.number}/{self.count}/{n}"
            parameters = [self.random.choice(self.topics), self.random.choice([None, "a", name]), name, "x" * 50]
            connection.execute(INSERT, parameters)
            if undo:
                connection.execute("ROLLBACK TO one")
            else:
                kept.append(name)
            if choose() < 0.05:
                connection.execute("SELECT pg_sleep(%s)", [choose() * (0.3 if choose() < 0.1 else 0.02)])
        if choose() < 0.15:
            connection.execute("ROLLBACK")
            return
        self.note({"first": first, "events": kept})
        connection.execute("COMMIT")
        self.note({"committed": time.monotonic(), "events": kept[:1]})

    def note(self, what: dict[str, Any]) -> None:
        os.write(self.notes, json.dumps({"transaction": f"{self.number}/{self.count}", **what}).encode() + b"\n")
        os.fsync(self.notes)


def number_on_and_on(url: str) -> None:
    from pubsub.sequencing.sequencer import sequence_on

    while True:
        try:
            with psycopg.connect(url, autocommit=True, application_name="workload") as connection:
                while True:
                    sequence_on(connection)
        except psycopg.OperationalError:
            time.sleep(0.02)


if __name__ == "__main__":
    role, address, *arguments = sys.argv[1:]
    if role == "writer":
        notes_file, own_number, own_seed, topic_ids = arguments
        Writer(address, Path(notes_file), int(own_number), int(own_seed), json.loads(topic_ids)).run()
    else:
        number_on_and_on(address)
