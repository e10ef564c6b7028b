"""Whatever is published is stored and handled as it was, or refused by InvalidEvent. Nothing else, for any value."""

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, transaction
from hypothesis import strategies as st

from pubsub import publish, publish_many
from pubsub.errors import InvalidEvent, InvalidTopic, UnknownTopic
from pubsub.publishing.publish import check_event
from tests.handlers import Recorder, declare, drain
from tests.hostile import any_text, attack, names_anything, times, values

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, names_anything]

OPTIONS = {
    "type": st.one_of(any_text, values),
    "key": st.one_of(any_text, values),
    "host_id": st.one_of(any_text, values),
    "user_id": st.one_of(any_text, values),
    "metadata": st.one_of(st.dictionaries(any_text, values, max_size=3), values),
    "deliver_at": st.one_of(times, values),
    "dedup_key": st.one_of(any_text, values),
    "to_group": st.one_of(any_text, values),
}
options = st.one_of(
    st.fixed_dictionaries({}),
    *(st.fixed_dictionaries({name: strategy}) for name, strategy in OPTIONS.items()),
    st.fixed_dictionaries({}, optional=OPTIONS),
)
events = st.one_of(
    values,
    st.builds(lambda payload, more: {"payload": payload, **more}, values, options),
    st.dictionaries(st.sampled_from(["payload", "pyload", "using", 7, None, "key"]), values),
)


def number(text: str) -> int | float:
    """PostgreSQL's numbers are decimals: 1e+22 is the same as 10000000000000000000000, and that is what is read."""
    decimal = Decimal(text)
    return int(decimal) if decimal == decimal.to_integral_value() else float(text)


def as_json(value: Any) -> Any:
    return json.loads(DjangoJSONEncoder(allow_nan=False).encode(value), parse_float=number)


def the_transaction_can_be_used() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def handled() -> dict[uuid.UUID, Any]:
    recorder = Recorder()
    drain(declare(recorder, group="readers"), wait_period_ms=1)
    return {event.id: event.payload for event in recorder.events}


@pytest.mark.timeout(180)
def test_any_payload_and_any_option() -> None:
    expected: dict[uuid.UUID, Any] = {}

    @attack(2500, payload=values, more=options)
    def run(payload: Any, more: dict[str, Any]) -> None:
        with transaction.atomic():
            try:
                event_id = publish("default", payload, **more)
            except InvalidEvent:
                pass
            else:
                if not more.keys() & {"to_group", "deliver_at", "dedup_key"}:
                    expected[event_id] = as_json(payload)
            the_transaction_can_be_used()

    run()
    assert len(expected) > 100
    found = handled()
    assert {id_: payload for id_, payload in expected.items() if found.get(id_, "missing") != payload} == {}


@pytest.mark.timeout(180)
def test_any_events_at_once() -> None:
    expected: list[Any] = []

    @attack(2000, given=st.lists(events, max_size=5))
    def run(given: list[Any]) -> None:
        with transaction.atomic():
            try:
                count = publish_many("default", iter(given))
            except InvalidEvent:
                pass
            else:
                assert count == len(given)
                expected.extend(
                    as_json(event["payload"])
                    for event in given
                    if not {name for name, value in event.items() if value is not None}
                    & {"to_group", "deliver_at", "dedup_key"}
                )
            the_transaction_can_be_used()

    run()
    found = list(handled().values())
    for payload in expected:
        found.remove(payload)


@pytest.mark.timeout(120)
def test_any_topic() -> None:
    @attack(1000, topic=st.one_of(any_text, values))
    def run(topic: Any) -> None:
        with transaction.atomic():
            with suppress(UnknownTopic, InvalidTopic):
                publish(topic, 1)
            the_transaction_can_be_used()

    run()


@pytest.mark.timeout(120)
def test_what_can_be_checked_without_a_database_is_refused_in_the_same_words() -> None:
    @attack(1000, event=events)
    def run(event: Any) -> None:
        assert refusal(lambda: publish_many("default", [event])) == refusal(lambda: check_event(event), "Event 1: ")

    run()


def refusal(call: Callable[[], Any], before: str = "") -> str | None:
    try:
        with transaction.atomic():
            call()
    except InvalidEvent as error:
        return f"{before}{error}"
    return None
