"""Whatever fails, in whatever batches, and whatever operators do: order by key, each effect once, counted attempts."""

import itertools
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pubsub import Event, publish
from pubsub.dead_letters import actions
from pubsub.models import DeadLetter
from tests.consuming.helpers import effects, note, topic_of
from tests.handlers import declare, drain
from tests.sessions import in_ci

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("effects_table")]

KEYS = st.sampled_from(["a", "b", "c", None])
TRANSACTIONS = st.lists(st.lists(KEYS, min_size=1, max_size=3), min_size=1, max_size=12)
names = itertools.count()


@dataclass
class Step:
    """Something is published, handled in batches of a size while some events fail, and then an operator acts."""

    published: list[list[str | None]]
    batch_size: int
    bad: set[int]
    operator: str
    chosen: int


STEPS = st.lists(
    st.builds(
        Step,
        published=TRANSACTIONS,
        batch_size=st.sampled_from([1, 2, 3, 7, 100]),
        bad=st.sets(st.integers(0, 60), max_size=4),
        operator=st.sampled_from(["replay", "discard", "nothing"]),
        chosen=st.integers(0, 3),
    ),
    min_size=1,
    max_size=4,
)


@dataclass
class Course:
    """A group that parks keys, and what is known of it."""

    topic: str
    retry: tuple[int, ...]
    bad: set[int] = field(default_factory=set)
    keys: list[str | None] = field(default_factory=list)
    """Of each event, whose payload is its number."""
    last_attempt: dict[tuple[uuid.UUID, int], int] = field(default_factory=dict)
    """Of what a transaction has in a partition."""
    replays: Counter[int] = field(default_factory=Counter)

    def __call__(self, event: Event) -> None:
        note(event.payload)
        self.last_attempt[event.transaction_id, event.partition] = event.attempt
        if event.payload in self.bad:
            raise ValueError(f"{event.payload} fails")

    def publish(self, transactions: list[list[str | None]]) -> None:
        for keys in transactions:
            with transaction.atomic():
                for key in keys:
                    publish(self.topic, len(self.keys), key=key)
                    self.keys.append(key)

    def drain(self, batch_size: int) -> None:
        drain(
            declare(self, topic=self.topic, group=self.topic, on_failure="park_key", retry=self.retry),
            batch_size=batch_size,
            wait_period_ms=1,
        )

    @property
    def letters(self) -> list[DeadLetter]:
        return list(DeadLetter.objects.filter(group_id=self.topic).order_by("c_offset"))

    def act(self, name: str, chosen: int) -> None:
        dead = [letter.pk for letter in self.letters if letter.state == "dead"]
        if not dead or name == "nothing":
            return
        act = {"replay": actions.replay, "discard": actions.discard}[name]
        changed = act([dead[chosen % len(dead)]], using="default")
        if name == "replay":
            by_id = {letter.pk: letter.payload for letter in self.letters}
            self.replays.update(by_id[letter.id] for letter in changed)

    def until_all_is_done(self) -> Iterator[None]:
        """What is dead is replayed, as often as it takes."""
        yield
        while any(letter.state == "dead" for letter in self.letters):
            self.act("replay", 0)
            yield

    def check(self) -> None:
        done, letters = effects(), self.letters
        by_state: dict[str, set[int]] = defaultdict(set)
        for letter in letters:
            by_state[letter.state].add(letter.payload)
        waiting = by_state["dead"] | by_state["parked"]
        assert not by_state["retrying"], "what can be tried was tried"
        assert len(done) == len(set(done)), "each effect once"
        assert set(done) | waiting | by_state["discarded"] == set(range(len(self.keys)))
        assert not set(done) & (waiting | by_state["discarded"])
        assert by_state["resolved"] <= set(done)
        for key in set(self.keys) - {None}:
            of_key = [number for number in done if self.keys[number] == key]
            assert of_key == sorted(of_key), f"in the order of key {key}"
            held_up = [number for number in waiting if self.keys[number] == key]
            assert not held_up or not of_key or min(held_up) > max(of_key), f"nothing overtakes in key {key}"
        for letter in letters:
            if letter.state in ("dead", "resolved"):
                assert letter.attempts == self.last_attempt[letter.transaction_id, letter.partition_id]
                if not self.retry:
                    assert letter.attempts == 1 + self.replays[letter.payload]
            elif letter.state == "parked":
                assert letter.attempts == 0
                self._check_that_it_waits(letter, letters)

    def _check_that_it_waits(self, parked: DeadLetter, letters: list[DeadLetter]) -> None:
        keys = {
            each.key
            for each in letters
            if (each.transaction_id, each.partition_id) == (parked.transaction_id, parked.partition_id)
        } - {None}
        assert any(
            each.key in keys and each.c_offset < parked.c_offset and each.transaction_id != parked.transaction_id
            for each in letters
            if each.state in ("dead", "parked")
        ), f"event {parked.payload} waits for nothing"


@pytest.fixture(scope="module")
def examples() -> int:
    return 40 if in_ci() else 15


def test_any_course(examples: int) -> None:
    # An example takes a second, so none is made smaller: that would take longer than a test may.
    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=[Phase.generate],
    )
    @given(STEPS, st.sampled_from([1, 2]), st.sampled_from([(), (0,)]))
    def run(steps: list[Step], partitions: int, retry: tuple[int, ...]) -> None:
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE effects")
        course = Course(topic=topic_of(partitions, name=f"course-{next(names)}"), retry=retry)
        for step in steps:
            course.publish(step.published)
            course.bad = step.bad
            course.drain(step.batch_size)
            course.check()
            course.act(step.operator, step.chosen)
        course.bad = set()
        for _ in course.until_all_is_done():
            course.drain(7)
            course.check()
        assert {letter.state for letter in course.letters} <= {"resolved", "discarded"}

    run()
