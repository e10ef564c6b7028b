"""What people choose, and what the actions then do with it: exactly that, once, and written down."""

import datetime as dt
import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from pubsub.dead_letters.actions import (
    DISCARD,
    REPLAY,
    Action,
    apply,
    apply_in_batches,
    count,
    discard,
    preview,
    replay,
)
from pubsub.dead_letters.edit import edit_and_replay, edit_payload
from pubsub.dead_letters.filter import LetterFilter
from pubsub.errors import InvalidEvent, LetterChanged, UnknownTopic
from pubsub.models import DeadLetter, Topic
from tests.audit import journal
from tests.factories import DeadLetterFactory, TopicFactory

State = DeadLetter.State
actions = pytest.mark.parametrize("action", [REPLAY, DISCARD], ids=["replay", "discard"])


def states() -> list[str]:
    return list(DeadLetter.objects.order_by("pk").values_list("state", flat=True))


def some_letters(number: int = 60) -> list[DeadLetter]:
    """Of few topics, groups, transactions and so on, so that each filter takes some and leaves some."""
    pick = random.Random(7).choice
    topics = [TopicFactory(name=f"topic-{n}") for n in range(2)]
    transactions = [uuid.UUID(int=n) for n in range(number // 4)]
    letters = []
    in_an_hour = timezone.now() + dt.timedelta(hours=1)
    for _ in range(number):
        state = pick([State.DEAD, State.DEAD, State.RETRYING, State.RESOLVED, State.DISCARDED, State.PARKED])
        letters.append(
            DeadLetterFactory(
                topic=pick(topics),
                group_id=pick(["a", "b"]),
                transaction_id=pick(transactions),
                partition_id=pick([0, 1]),
                type=pick(["x", "y"]),
                key=pick(["k", "l", None]),
                host_id=pick(["h", "i", None]),
                exception_class=pick(["errors.A", "builtins.ValueError"]),
                state=state,
                next_attempt_at=pick([timezone.now(), in_an_hour]) if state == State.RETRYING else None,
            )
        )
    DeadLetter.objects.filter(pk__in=[it.pk for it in letters[::3]]).update(
        created_at=timezone.now() - dt.timedelta(days=3)
    )
    return letters


CHOICES: list[dict[str, Any]] = [
    {},
    {"group": "a"},
    {"topic": "topic-1"},
    {"type": "x", "key": "k"},
    {"exception": "ValueError"},
    {"host": "h"},
    {"state": "retrying"},
    {"transaction": uuid.UUID(int=3)},
    {"search": "k"},
    {"search": "h", "group": "b"},
    {"search": str(uuid.UUID(int=2))},
    {"since": timezone.now() - dt.timedelta(days=1)},
    {"until": timezone.now() - dt.timedelta(days=1), "group": "a"},
    {"ids": ()},
]


@pytest.mark.django_db
@actions
@pytest.mark.parametrize("choice", CHOICES, ids=lambda it: "-".join(it) or "everything")
def test_list_count_preview_and_action_agree(action: Action, choice: dict[str, Any]) -> None:
    some_letters()
    letter_filter = LetterFilter(**choice)
    assert LetterFilter.from_described(letter_filter.described) == letter_filter
    applicable = DeadLetter.objects.filter(state__in=action.states)
    if action is REPLAY:
        # What is due already is in its group's hands.
        applicable = applicable.exclude(state=State.RETRYING, next_attempt_at__lte=timezone.now())
    chosen = letter_filter.among(applicable)
    units = set(chosen.values_list("group_id", "topic_id", "partition_id", "transaction_id"))
    expected = {
        it.pk: it.state for it in applicable if (it.group_id, it.topic_id, it.partition_id, it.transaction_id) in units
    }
    chosen_ids = set(chosen.values_list("pk", flat=True))
    counts = count(action, letter_filter, using="default")
    assert sum(it.events for it in counts) == len(expected)
    assert sum(it.transactions for it in counts) == len({(group, topic, id_) for group, topic, _, id_ in units})
    assert {it.chosen for it in counts} <= {len(chosen_ids)}
    foretold = preview(action, letter_filter, using="default")
    changed = apply(action, letter_filter, using="default")
    assert foretold == changed
    assert {it.id: it.state for it in changed} == expected
    assert {it.id for it in changed if it.is_chosen} == chosen_ids
    assert set(DeadLetter.objects.filter(pk__in=expected).values_list("state", flat=True)) <= {action.becomes}


@pytest.mark.django_db
@actions
def test_batches_do_the_same_as_all_at_once(action: Action) -> None:
    some_letters()
    expected = {it.id for it in preview(action, LetterFilter(), using="default")}
    batches = list(
        apply_in_batches(action, LetterFilter(), using="default", batch_size=5, actor="olivia", reason="why")
    )
    assert len(batches) > 3
    ids = [it.id for batch in batches for it in batch]
    assert len(ids) == len(set(ids))
    assert set(ids) == expected
    told = journal().all()
    assert sorted(id_ for event in told for id_ in event.after["ids"]) == sorted(ids)
    assert {(event.actor, event.reason, event.action) for event in told} == {
        ("olivia", "why", f"{action.name}-dead-letters")
    }


@pytest.mark.django_db
def test_nothing_is_recorded_if_nothing_changes() -> None:
    letter = DeadLetterFactory(state=State.RESOLVED)
    assert replay([letter.pk], using="default") == []
    assert discard([letter.pk], using="default", dry_run=True) == []
    assert not journal().exists()


@pytest.mark.django_db
def test_a_topic_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownTopic):
        count(REPLAY, LetterFilter(topic="nothing"), using="default")


@pytest.mark.django_db
def test_events_parked_behind_a_discarded_event_continue() -> None:
    topic, parked = TopicFactory(), {"state": State.PARKED, "attempts": 0}
    first = DeadLetterFactory(topic=topic, key="one")
    DeadLetterFactory(topic=topic, key="one", **parked)
    DeadLetterFactory(topic=topic, key="one", **parked)
    DeadLetterFactory(topic=topic, key="two")
    DeadLetterFactory(topic=topic, key="two", **parked)
    DeadLetterFactory(topic=topic, key="one", group_id="another-group", **parked)
    discard([first.pk], using="default")
    assert states() == [
        State.DISCARDED,
        State.RETRYING,  # and what is behind this one waits for it now
        State.PARKED,
        State.DEAD,
        State.PARKED,
        State.PARKED,
    ]


def at_once(people: int, press: Any) -> list[Any]:
    together = threading.Barrier(people)

    def one(number: int) -> Any:
        together.wait()
        try:
            return press(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(people) as pool:
        return [answer.result() for answer in [pool.submit(one, number) for number in range(people)]]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_different_actions_at_once_never_deadlock_and_happen_once(isolation: str) -> None:
    topic = TopicFactory()
    letters = [DeadLetterFactory(topic=topic, transaction_id=uuid.UUID(int=n // 3)).pk for n in range(90)]
    orders = [letters, letters[::-1], letters[1::2], letters[::2]]

    def press(number: int) -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute(f"SET default_transaction_isolation = '{isolation}'")
        press = replay if number % 2 else discard
        return [it.id for it in press(orders[number], using="default")]

    changed = [id_ for ids in at_once(4, press) for id_ in ids]
    discarded_after = journal().filter(action="discard-dead-letters").count()
    # What was replayed may be discarded a moment later; each of the two happens to a letter once.
    assert len(changed) == len(set(changed)) + sum(
        len(event.after["ids"]) for event in journal().all() if event.before["states"] == ["retrying"]
    )
    assert discarded_after >= 1
    assert set(states()) == {State.DISCARDED}


@pytest.mark.django_db(transaction=True)
def test_two_operators_who_process_everything_in_batches_share_it() -> None:
    topic = TopicFactory()
    DeadLetterFactory.create_batch(60, topic=topic)

    def press(number: int) -> list[int]:
        return [
            it.id for batch in apply_in_batches(REPLAY, LetterFilter(), using="default", batch_size=7) for it in batch
        ]

    done = [id_ for ids in at_once(3, press) for id_ in ids]
    assert len(done) == len(set(done)) == 60
    assert set(states()) == {State.RETRYING}


@pytest.mark.django_db
def test_an_edited_payload_keeps_the_published_one() -> None:
    letter = DeadLetterFactory(payload={"total": "49,90"})
    for payload, original in (
        ('{"total": 49.90}', {"total": "49,90"}),
        ('{"total": 50}', {"total": "49,90"}),
        ('{"total": "49,90"}', None),
    ):
        edit_payload(letter.pk, payload, using="default", actor="olivia", reason="a comma")
        letter.refresh_from_db()
        assert letter.original_payload == original
    event = journal().order_by("pk")[0]
    assert (event.actor, event.action, event.reason) == ("olivia", "edit-dead-letter-payload", "a comma")
    assert "49" not in str((event.before, event.after))


@pytest.mark.django_db
def test_editing_a_payload_that_has_changed_since_changes_nothing() -> None:
    letter = DeadLetterFactory(payload={"total": 1})
    with connection.cursor() as cursor:
        cursor.execute("SELECT md5(payload::text) FROM dead_letter_queue")
        (seen,) = cursor.fetchone()
    edit_and_replay(letter.pk, '{"total": 2}', using="default", seen=seen)
    for again in (seen, None):  # another operator has edited it; it does not wait for an operator
        with pytest.raises(LetterChanged, match=f"Dead letter {letter.pk} was not changed"):
            edit_payload(letter.pk, '{"total": 3}', using="default", seen=again)
    letter.refresh_from_db()
    assert (letter.payload, letter.state) == ({"total": 2}, State.RETRYING)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"a": ', "Expected JSON, but in line 1, column 7"),
        ('{\n"a": 1,\n}', "Expected JSON, but in line 3, column 1"),
        ('{"a": NaN}', "NaN stands in the payload"),
        ('{"a": 1, "a": 2}', 'The key "a" stands twice'),
        ('"\\u0000"', "PostgreSQL cannot store this payload"),
        ('"\\ud800"', "PostgreSQL cannot store this payload"),
        ("[" * 100_000, "Expected JSON of a reasonable depth"),
        ("1" * 3_000_000, "The payload has 3,000,000 bytes"),
    ],
)
def test_an_invalid_payload_is_refused_with_line_and_column(text: str, error: str) -> None:
    letter = DeadLetterFactory(payload=1)
    with pytest.raises(InvalidEvent) as raised, transaction.atomic():
        edit_payload(letter.pk, text, using="default")
    assert error in str(raised.value)
    letter.refresh_from_db()
    assert letter.payload == 1
    assert Topic.objects.exists()


@pytest.mark.django_db
def test_long_numbers_survive_an_edit() -> None:
    letter = DeadLetterFactory(payload=1)
    edit_payload(letter.pk, "9" * 5000, using="default")
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload::text FROM dead_letter_queue")
        assert cursor.fetchone() == ("9" * 5000,)
