"""Sessions that begin, publish, undo, commit and number in any order, against a model of what the log must say."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from pubsub.models import Topic
from pubsub.sequencing.delayed import move_due_on
from tests.log import checked_log, entries, insert, number
from tests.sessions import Session, connect, in_ci

pytestmark = pytest.mark.django_db(transaction=True)

SESSIONS = 3


@dataclass
class Published:
    name: str
    topic: int
    step: int
    """When it was published; ids are given out in the same order."""


@dataclass
class Transaction:
    """What an open transaction holds, and what it held when each of its savepoints was set."""

    events: list[Published] = field(default_factory=list)
    delayed: list[str] = field(default_factory=list)
    savepoints: list[tuple[int, int]] = field(default_factory=list)


def in_order(transactions: list[list[Published]]) -> list[list[Published]]:
    """By the last event of each."""
    return sorted(transactions, key=lambda events: events[-1].step)


def named(transactions: list[list[Published]]) -> list[tuple[int, str]]:
    return [(event.topic, event.name) for events in transactions for event in events]


class Publishing(RuleBasedStateMachine):
    sessions: list[Session]
    observer: Session
    topics: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[int, Transaction] = {}
        self.committed: list[list[Published]] = []
        """Transactions that wait to be numbered."""
        self.delayed: list[str] = []
        self.moved: list[str] = []
        self.backlog: list[list[Published]] = []
        """Transactions of a backlog that is numbered in pieces, in the order of the pieces still to come."""
        self.steps = 0
        self.names = 0
        self.log = [(entry.topic, entry.offset, entry.name) for entry in entries(self.observer)]
        self.base = len(self.log)
        # Whether there is a backlog must not depend on what came before.
        self.observer.execute("UPDATE log_sequencer SET reached_id = (SELECT last_value FROM outbox_message_t_id_seq)")

    def next_name(self) -> str:
        self.names += 1
        return f"{self.base}/{self.names}"

    @rule(n=st.integers(0, SESSIONS - 1), first=st.booleans())
    def begin(self, n: int, first: bool) -> None:
        """Some transactions have a number long before they publish."""
        if n not in self.open:
            self.sessions[n].execute("BEGIN")
            if first:
                self.sessions[n].execute("SELECT pg_current_xact_id()")
            self.open[n] = Transaction()

    @rule(n=st.integers(0, SESSIONS - 1), topic=st.integers(0, 2), key=st.sampled_from([None, "a", "b"]))
    def publish(self, n: int, topic: int, key: str | None) -> None:
        """In the session's transaction; without one, as a transaction of its own."""
        self.steps += 1
        event = Published(self.next_name(), self.topics[topic], self.steps)
        insert(self.sessions[n], event.name, topic=event.topic, key=key)
        if n in self.open:
            self.open[n].events.append(event)
        else:
            self.committed.append([event])

    @rule(turns=st.lists(st.integers(0, SESSIONS - 1), min_size=2, max_size=6))
    def take_turns(self, turns: list[int]) -> None:
        """Transactions whose ids interleave, which single steps would rarely bring about."""
        for n in turns:
            self.begin(n, False)
            self.publish(n, n, None)

    @rule(n=st.integers(0, SESSIONS - 1))
    def publish_delayed(self, n: int) -> None:
        name = self.next_name()
        self.sessions[n].execute(
            "INSERT INTO outbox_delayed_message (deliver_at, topic_id, payload)"
            " VALUES (clock_timestamp(), 1, jsonb_build_object('n', %s::text))",
            [name],
        )
        (self.open[n].delayed if n in self.open else self.delayed).append(name)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def savepoint(self, data: st.DataObject) -> None:
        n = data.draw(st.sampled_from(sorted(self.open)))
        held = self.open[n]
        self.sessions[n].execute(f"SAVEPOINT s{len(held.savepoints)}")
        held.savepoints.append((len(held.events), len(held.delayed)))

    @precondition(lambda self: any(held.savepoints for held in self.open.values()))
    @rule(data=st.data(), undo=st.booleans())
    def end_savepoint(self, data: st.DataObject, undo: bool) -> None:
        n = data.draw(st.sampled_from(sorted(n for n, held in self.open.items() if held.savepoints)))
        held = self.open[n]
        which = data.draw(st.integers(0, len(held.savepoints) - 1))
        if undo:
            self.sessions[n].execute(f"ROLLBACK TO s{which}")
            events, delayed = held.savepoints[which]
            del held.events[events:], held.delayed[delayed:]
            del held.savepoints[which + 1 :]
        else:
            self.sessions[n].execute(f"RELEASE s{which}")
            del held.savepoints[which:]

    @precondition(lambda self: self.open)
    @rule(data=st.data(), keep=st.sampled_from([True, True, False]))
    def end(self, data: st.DataObject, keep: bool) -> None:
        self.end_one(data.draw(st.sampled_from(sorted(self.open))), keep)

    @precondition(lambda self: len(self.open) > 1)
    @rule(order=st.permutations(range(SESSIONS)))
    def commit_all(self, order: list[int]) -> None:
        for n in order:
            if n in self.open:
                self.end_one(n, True)

    def end_one(self, n: int, keep: bool) -> None:
        self.sessions[n].execute("COMMIT" if keep else "ROLLBACK")
        held = self.open.pop(n)
        if keep:
            self.steps += 1
            if held.events:
                self.committed.append(held.events)
            self.delayed += held.delayed

    @rule()
    def move_due(self) -> None:
        with self.observer.cursor() as cursor:
            move_due_on(cursor)
            assert cursor.rowcount == len(self.delayed)
        self.moved += self.delayed
        self.delayed = []

    @precondition(lambda self: self.committed or self.moved or self.backlog or self.steps % 4 == 0)
    @rule(n=st.integers(0, SESSIONS))
    def sequence(self, n: int) -> None:
        """By any session that has nothing open."""
        session = self.observer if n == SESSIONS or n in self.open else self.sessions[n]
        while self.backlog:
            self.take_piece(session, number(session).messages)
        waiting = sum(map(len, self.committed)) + len(self.moved)
        done = number(session)
        assert done.messages == waiting
        assert done.outcome == ("numbered" if waiting else "idle")
        new = entries(self.observer, after=len(self.log))
        assert sorted(entry.name for entry in new if entry.name in self.moved) == sorted(self.moved)
        # Exactly: by the last event of each transaction, its events together and in their order.
        told = [(entry.topic, entry.name) for entry in new if entry.name not in self.moved]
        assert told == named(in_order(self.committed))
        self.log += [(entry.topic, entry.offset, entry.name) for entry in new]
        self.committed, self.moved = [], []

    @precondition(lambda self: (self.committed or self.backlog) and not self.moved)
    @rule(n=st.integers(0, SESSIONS), most=st.integers(1, 3))
    def sequence_a_piece(self, n: int, most: int) -> None:
        """What commits between two pieces comes after all of them."""
        session = self.observer if n == SESSIONS or n in self.open else self.sessions[n]
        if not self.backlog:
            self.backlog, self.committed = in_order(self.committed), []
        (events,) = session.execute("SELECT events FROM pubsub_sequence_v1(%s)", [most]).fetchone() or (0,)
        self.take_piece(session, events, most)

    def take_piece(self, session: Session, events: int, most: int = 1) -> None:
        assert events >= min(most, len(self.backlog[0]))
        new = entries(self.observer, after=len(self.log))
        assert len(new) == events
        piece: list[list[Published]] = []
        while sum(map(len, piece)) < events:
            piece.append(self.backlog.pop(0))
        assert [(entry.topic, entry.name) for entry in new] == named(piece)
        self.log += [(entry.topic, entry.offset, entry.name) for entry in new]

    @invariant()
    def what_was_numbered_stays(self) -> None:
        (following,) = self.observer.execute("SELECT next_position FROM log_sequencer").fetchone() or (0,)
        assert following == len(self.log) + 1

    def teardown(self) -> None:
        for n in list(self.open):
            self.sessions[n].execute("ROLLBACK")
        self.open = {}
        self.move_due()
        self.sequence(SESSIONS)
        log: list[Any] = [
            (entry.topic, entry.offset, entry.name) for entry in checked_log(self.observer, together=False)
        ]
        assert log == self.log


@pytest.mark.timeout(400)  # to find the shortest example that fails takes longer than to find that all is well
def test_any_order_of_events() -> None:
    sessions = [connect() for _ in range(SESSIONS + 1)]
    Publishing.observer, *Publishing.sessions = sessions
    Publishing.topics = [1, *(Topic.objects.create(name=name, total_partitions=3).pk for name in ("second", "third"))]
    try:
        run_state_machine_as_test(
            Publishing,
            settings=settings(
                max_examples=150,
                stateful_step_count=30,
                deadline=None,
                database=None,
                derandomize=in_ci(),
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
    finally:
        for session in sessions:
            session.close()
