"""on_failure: what waits behind a failed event, and goes on in its order when that is done with."""

import threading
from collections import defaultdict
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from pubsub import Delivery, Event, publish
from pubsub.dead_letters import actions
from pubsub.dead_letters.parking import hold_blockers, unpark_left_behind
from pubsub.models import Attempt, DeadLetter
from tests.consuming.helpers import claims, lag, publish_each, states
from tests.handlers import Recorder, declare, drain
from tests.sessions import Running

MODES = [Delivery.TRANSACTIONAL, Delivery.AT_LEAST_ONCE]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Delivery:
    return request.param


class Keeper:
    """Handles, by key, unless told to fail."""

    def __init__(self, *bad: Any) -> None:
        self.bad = set(bad)
        self.calls: list[Any] = []
        self.of_key: dict[Any, list[Any]] = defaultdict(list)

    @property
    def first_calls(self) -> list[Any]:
        """Without those of what was undone, and is handled again."""
        return list(dict.fromkeys(self.calls))

    def __call__(self, event: Event) -> None:
        self.calls.append(event.payload)
        if event.payload in self.bad:
            raise ValueError(f"{event.payload} fails")
        self.of_key[event.key].append(event.payload)


def parking(handler: Any, mode: Delivery, **options: Any) -> Any:
    return declare(handler, topic="work", delivery=mode, on_failure="park_key", **options)


def publish_in_one(*events: tuple[str | None, Any]) -> None:
    with transaction.atomic():
        for key, payload in events:
            publish("work", payload, key=key)


def replay(payload: Any) -> Any:
    return actions.replay([DeadLetter.objects.get(payload=payload).pk], using="default")


def discard(payload: Any) -> None:
    assert actions.discard([DeadLetter.objects.get(payload=payload).pk], using="default")
    unpark_left_behind("default")


def test_later_events_of_the_key_wait_others_flow_and_replay_releases_them_in_order(mode: Delivery) -> None:
    for n in range(4):
        publish_each(f"a{n}", key="a")
        publish_each(f"b{n}", key="b")
    handler = Keeper("a1")
    drain(parking(handler, mode))
    publish_each("a4", key="a")
    drain(parking(handler, mode))
    assert handler.of_key["b"][-4:] == ["b0", "b1", "b2", "b3"]
    assert states() == [("a1", "dead"), ("a2", "parked"), ("a3", "parked"), ("a4", "parked")]
    assert (lag(), claims()) == (0, [])
    done = Keeper()
    assert len(replay("a1")) == 1
    drain(parking(done, mode))
    assert done.calls == ["a1", "a2", "a3", "a4"]
    assert {state for _, state in states()} == {"resolved"}


def test_a_retry_that_succeeds_releases_them_too(mode: Delivery) -> None:
    publish_each("a0", "a1", "a2", key="a")
    handler = Recorder(fails=lambda event: event.payload == "a0" and event.attempt < 3)
    drain(parking(handler, mode, retry=[0, 0]), wait_period_ms=1)
    assert [payload for payload in handler.payloads if payload != "a0"] == ["a1", "a2"]
    assert {state for _, state in states()} == {"resolved"}
    failures = DeadLetter.objects.order_by("c_offset").values_list("attempts", "exception_class")
    assert list(failures) == [(3, "builtins.ValueError"), (1, ""), (1, "")], "no worker has died"
    assert Attempt.objects.count() == 2


def test_a_failure_in_the_middle_parks_the_rest_again(mode: Delivery) -> None:
    publish_each("a0", "a1", "a2", "a3", key="a")
    drain(parking(Keeper("a0"), mode))
    replay("a0")
    handler = Keeper("a2")
    drain(parking(handler, mode))
    assert handler.first_calls == ["a0", "a1", "a2"]
    assert states() == [("a0", "resolved"), ("a1", "resolved"), ("a2", "dead"), ("a3", "parked")]
    discard("a2")
    last = Keeper()
    drain(parking(last, mode))
    assert last.calls == ["a3"]
    assert states()[2:] == [("a2", "discarded"), ("a3", "resolved")]


def test_a_transaction_of_several_keys_waits_for_all_of_them(mode: Delivery) -> None:
    publish_each("a0", key="a")
    publish_each("b0", key="b")
    publish_in_one(("a", "a1"), ("b", "b1"), ("c", "c1"))
    publish_each("c2", key="c")
    publish_each("d0", key="d")
    handler = Keeper("a0", "b0")
    drain(parking(handler, mode))
    assert "d0" in handler.calls
    assert states() == [
        ("a0", "dead"),
        ("b0", "dead"),
        ("a1", "parked"),
        ("b1", "parked"),
        ("c1", "parked"),
        ("c2", "parked"),
    ]
    replay("a0")
    first = Keeper()
    drain(parking(first, mode))
    assert first.calls == ["a0"]
    replay("b0")
    second = Keeper()
    drain(parking(second, mode))
    assert second.calls == ["b0", "a1", "b1", "c1", "c2"]
    assert {state for _, state in states()} == {"resolved"}


def test_a_later_one_that_is_replayed_first_waits_for_the_earlier_one(mode: Delivery) -> None:
    """Both are dead letters where the group has begun to park keys since."""
    publish_each("a0", key="a")
    publish_in_one((None, "x"), ("a", "a1"))
    publish_each("a2", key="a")
    drain(declare(Keeper("a0", "a1"), topic="work", delivery=mode))
    assert states() == [("a0", "dead"), ("x", "dead"), ("a1", "dead")]
    replay("a1")
    handler = Keeper("a0")
    drain(parking(handler, mode), batch_size=1)
    assert (handler.calls, states()) == ([], [("a0", "dead"), ("x", "parked"), ("a1", "parked")])
    replay("a0")
    drain(parking(handler, mode), batch_size=1)
    assert (set(handler.calls), states()[1:]) == ({"a0"}, [("x", "parked"), ("a1", "parked")])
    replay("a0")
    last = Keeper()
    drain(parking(last, mode), batch_size=1)
    assert last.calls == ["a0", "x", "a1"]
    assert {state for _, state in states()} == {"resolved"}


def test_a_transaction_that_fails_before_its_event_that_has_to_wait_waits_too(mode: Delivery) -> None:
    """Its next attempt, or a replay, would overtake what it has to wait for."""
    publish_each("a0", key="a")
    publish_in_one((None, "x0"), *((None, f"x{n}") for n in range(1, 5)), ("a", "a1"))
    publish_each("a2", key="a")
    drain(parking(Keeper("a0", "x0"), mode), batch_size=1)
    waiting = ["x0", "x1", "x2", "x3", "x4", "a1", "a2"]
    assert states() == [("a0", "dead"), *((payload, "parked") for payload in waiting)]
    replay("a0")
    handler = Keeper()
    drain(parking(handler, mode), batch_size=1)
    assert handler.first_calls == ["a0", *waiting]
    assert {state for _, state in states()} == {"resolved"}


def test_events_without_a_key_wait_for_nothing_and_a_host_is_the_key_of_those(mode: Delivery) -> None:
    with transaction.atomic():
        publish("work", "bad none")
    with transaction.atomic():
        publish("work", "none")
    with transaction.atomic():
        publish("work", "bad host", host_id="h")
    for payload, names in (("by host", {"host_id": "h"}), ("by key", {"key": "h"}), ("other", {"host_id": "i"})):
        with transaction.atomic():
            publish("work", payload, **names)
    # Only in what it is ordered by: its host does not hold back one that has another key.
    with transaction.atomic():
        publish("work", "another key", key="z", host_id="h")
    handler = Keeper("bad none", "bad host")
    drain(parking(handler, mode))
    assert states() == [("bad none", "dead"), ("bad host", "dead"), ("by host", "parked"), ("by key", "parked")]
    assert {"none", "other", "another key"} <= set(handler.calls)


def test_an_event_may_be_discarded_while_another_is_being_parked_behind_it() -> None:
    """Read as blocked, parked when nothing blocks any more: it must not wait for ever."""
    publish_each("a0", key="a")
    drain(parking(Keeper("a0"), Delivery.AT_LEAST_ONCE))
    publish_each("first", key="x")
    publish_each("a1", key="a")
    calls: list[Any] = []

    def handler(event: Event) -> None:
        calls.append(event.payload)
        if event.payload == "first":
            discard("a0")

    drain(parking(handler, Delivery.AT_LEAST_ONCE))
    assert calls == ["first", "a1"]
    assert {state for _, state in states()} == {"discarded", "resolved"}


def test_a_discard_during_parking_waits_and_then_sees_the_parked_events() -> None:
    publish_each("a0", key="a")
    declaration = parking(Keeper("a0"), Delivery.TRANSACTIONAL)
    drain(declaration)
    publish_each("a1", key="a")
    publish_each("b", key="b")
    inside, go_on = threading.Event(), threading.Event()
    calls: list[Any] = []

    class Slow(ValueError):
        """Is written down, behind what is parked, only when the test says so."""

        def __str__(self) -> str:
            inside.set()
            assert go_on.wait(30)
            return "slow"

    def handler(event: Event) -> None:
        calls.append(event.payload)
        if event.payload == "b":
            raise Slow

    running = Running(drain, parking(handler, Delivery.TRANSACTIONAL))
    assert inside.wait(30)
    discarding = Running(discard, "a0")
    discarding.join(0.3)
    assert discarding.is_alive(), "what is parked behind it is not committed yet"
    go_on.set()
    running.result()
    discarding.result()
    drain(parking(handler, Delivery.TRANSACTIONAL))
    assert calls.count("a1") == 1
    assert states() == [("a0", "discarded"), ("a1", "resolved"), ("b", "dead")]


def test_stop_nothing_behind_it_is_handled_until_it_is_resolved_or_discarded(mode: Delivery) -> None:
    publish_each(1, 2, 3)

    def stopping(handler: Any) -> Any:
        return declare(handler, topic="work", delivery=mode, on_failure="stop")

    drain(stopping(Keeper(1)))
    assert claims() == [], "no worker has died"
    handler = Keeper(1, 2)
    drain(stopping(handler))
    assert handler.calls == []
    assert states() == [(1, "dead")]
    replay(1)
    drain(stopping(handler))
    assert handler.calls == [1]
    discard(1)
    drain(stopping(handler))
    assert [call for call in handler.calls if call == 3] == []
    assert states() == [(1, "discarded"), (2, "dead")]
    replay(2)
    last = Keeper()
    drain(stopping(last))
    assert last.calls == [2, 3]
    assert (lag(), claims()) == (0, [])


def test_however_many_wait_only_the_last_one_before_is_held(mode: Delivery) -> None:
    """Each event that is parked looks at what it waits for: at all of them, a long row would take for ever."""
    keeper = Keeper("bad")
    publish_each("bad", *range(20), key="a")
    publish_each("other", key="b")
    drain(parking(keeper, mode))
    letters = DeadLetter.objects.order_by("c_offset")
    assert [letter.payload for letter in letters] == ["bad", *range(20)]
    last = letters.last()
    assert last
    with transaction.atomic(), connection.cursor() as cursor:
        hold_blockers(cursor, "readers", last.topic_id, ["a", "b"], [last.c_offset] * 2)
        held = locked_rows(cursor)
    assert held == [letters[19].pk]


def locked_rows(cursor: Any) -> list[int]:
    """Of the dead letters, those that this transaction holds."""
    cursor.execute(
        "SELECT id FROM dead_letter_queue WHERE xmax = pg_current_xact_id()::xid"
        " AND state IN ('retrying', 'dead', 'parked') ORDER BY id"
    )
    return [id_ for (id_,) in cursor.fetchall()]


def test_what_has_to_wait_is_parked_by_one_statement_for_each_batch() -> None:
    """One for each event would take a hundred times as long as handling them."""
    drain(parking(Keeper(), Delivery.TRANSACTIONAL))
    publish_each("bad", key="a")
    for n in range(30):
        publish_each(f"a{n}", key="a")
        publish_each(f"b{n}", key="b")
    publish_in_one(("c", "c0"), ("a", "with another"))
    publish_each("behind that", key="c")
    handler = Keeper("bad")
    with CaptureQueriesContext(connection) as sent:
        drain(parking(handler, Delivery.TRANSACTIONAL), batch_size=20)
    set_aside = [query for query in sent.captured_queries if "INSERT INTO dead_letter_queue" in query["sql"]]
    savepoints = [query for query in sent.captured_queries if query["sql"].startswith("SAVEPOINT")]
    batches = 4
    assert len(set_aside) == batches + len(["bad", "with another"])
    assert len(savepoints) < 25, "only the batches in which something has failed go on one by one"
    assert [call for call in handler.first_calls if call[0] == "b" and call != "bad"] == [f"b{n}" for n in range(30)]
    waiting = [*(f"a{n}" for n in range(30)), "c0", "with another", "behind that"]
    assert states() == [("bad", "dead"), *((payload, "parked") for payload in waiting)]
    ids = DeadLetter.objects.order_by("c_offset").values_list("pk", flat=True)
    assert list(ids) == sorted(ids), "in lists they stand in their order"


def test_what_is_released_is_handled_together_and_only_what_fails_stays() -> None:
    """One transaction after the other would take a hundred times as long as handling them at first."""
    publish_each("bad", *range(40), key="a")
    drain(parking(Keeper("bad"), Delivery.TRANSACTIONAL))
    discard("bad")
    handler = Keeper(35)
    with CaptureQueriesContext(connection) as sent:
        drain(parking(handler, Delivery.TRANSACTIONAL), batch_size=20)
    resolved = [query for query in sent.captured_queries if "SET state = 'resolved'" in query["sql"]]
    assert len(resolved) == 2, "one for each batch"
    assert handler.first_calls == list(range(36))
    waiting = [(35, "dead"), *((n, "parked") for n in range(36, 40))]
    assert states() == [("bad", "discarded"), *((n, "resolved") for n in range(35)), *waiting]
    replay(35)
    last = Keeper()
    drain(parking(last, Delivery.TRANSACTIONAL), batch_size=20)
    assert last.calls == list(range(35, 40))
    assert states()[1:] == [(n, "resolved") for n in range(40)]
    attempts = DeadLetter.objects.order_by("c_offset").values_list("attempts", flat=True)
    assert list(attempts) == [1, *[1] * 35, 2, *[1] * 4]
    assert Attempt.objects.count() == 2, "of the two that have failed"


def test_under_a_lease_a_row_of_them_is_parked_by_one_statement_too() -> None:
    publish_each("bad", *range(30), key="a")
    publish_each("other", key="b")
    publish_each("last", key="a")
    handler = Keeper("bad")
    with CaptureQueriesContext(connection) as sent:
        drain(parking(handler, Delivery.AT_LEAST_ONCE), batch_size=20)
    set_aside = [query for query in sent.captured_queries if "INSERT INTO dead_letter_queue" in query["sql"]]
    assert len(set_aside) == 4, "the one that has failed, a row for each of two batches, and the last one"
    assert handler.calls == ["bad", "other"]
    assert states() == [("bad", "dead"), *((payload, "parked") for payload in [*range(30), "last"])]
    assert (lag(), claims()) == (0, [])
    discard("bad")
    last = Keeper()
    drain(parking(last, Delivery.AT_LEAST_ONCE))
    assert last.calls == [*range(30), "last"]
