"""publish() and its relatives: what is written, when, and what is refused before anything is."""

import asyncio
import contextlib
import datetime as dt
import enum
import http
import re
import threading
import uuid
from collections.abc import Awaitable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.serializers.base import DeserializedObject
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from django.test import override_settings
from django.utils import timezone
from django.utils.functional import lazystr

import pubsub
from pubsub import publish, publish_many, publish_on_commit
from pubsub.errors import InvalidEvent, NotInTransaction, UnknownTopic, WrongDatabase
from pubsub.models import DelayedMessage, OutboxMessage, Topic
from tests.audit import journal
from tests.sessions import Running

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_option_is_stored() -> None:
    host, user = uuid.uuid4(), 42
    with transaction.atomic():
        event_id = publish(
            "default",
            {"at": dt.date(2024, 2, 29), "sum": Decimal("1.10"), "ref": host},
            type="order.created",
            key=7,
            host_id=host,
            user_id=user,
            metadata={"trace": "abc"},
            to_group="emails",
        )
    message = OutboxMessage.objects.get()
    assert message.event_id == event_id
    assert message.topic_id == 1
    assert message.payload == {"at": "2024-02-29", "sum": "1.10", "ref": str(host)}
    assert (message.type, message.key, message.host_id, message.user_id) == ("order.created", "7", str(host), "42")
    assert (message.metadata, message.to_group) == ({"trace": "abc"}, "emails")


def test_rollback_leaves_nothing_and_a_savepoint_takes_its_own() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        publish("default", {"n": 1})
        raise ZeroDivisionError
    with transaction.atomic():
        publish("default", {"n": 2})
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            publish("default", {"n": 3})
            raise ZeroDivisionError
        publish("default", {"n": 4})
    assert [message.payload["n"] for message in OutboxMessage.objects.order_by("id")] == [2, 4]


def test_one_transaction_has_one_transaction_id_however_it_inserts() -> None:
    with transaction.atomic():
        publish("default", 1)
        with transaction.atomic():
            publish_many("default", [{"payload": 2}])
        OutboxMessage.objects.bulk_create([OutboxMessage(topic_id=1, payload=3)])
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO outbox_message_t (payload) VALUES ('4')")
    with transaction.atomic():
        publish("default", 5)
    first, second = OutboxMessage.objects.order_by("id")[:4], OutboxMessage.objects.get(payload=5)
    assert len({message.transaction_id for message in first}) == 1
    assert len({message.xid for message in first}) == 1
    assert second.transaction_id != first[0].transaction_id


def test_outside_a_transaction_the_error_says_what_to_do() -> None:
    with pytest.raises(NotInTransaction, match=r"Wrap both in `with transaction\.atomic\(\):`"):
        publish("default", {})
    with pytest.raises(NotInTransaction):
        publish_many("default", [{"payload": 1}])


def test_manual_transaction_management_counts_as_a_transaction() -> None:
    transaction.set_autocommit(False)
    try:
        publish("default", {"n": 1})
        transaction.rollback()
        publish("default", {"n": 2})
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert OutboxMessage.objects.get().payload == {"n": 2}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"a": [1, float("nan")]}, r'^payload\["a"\]\[1\] is nan'),
        ({"a": float("inf")}, r'^payload\["a"\] is inf'),
        ({"a": "\x00"}, r'^payload\["a"\] contains the character \\u0000'),
        ({"a\x00": 1}, r"^a key of payload contains the character \\u0000"),
        ("\ud800", "^payload contains half of a surrogate pair"),
        ({"a": lazystr("\x00")}, r'^payload\["a"\] contains the character \\u0000'),
        ({"a": {1, 2}}, r'^payload\["a"\] is of type set'),
        ({(1, 2): 3}, "^payload has a key of type tuple"),
        (object(), "^payload is of type object"),
        ("x" * 2_000_000, "^payload has 2,000,002 bytes as JSON; at most 1,048,576 are allowed"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_by_name_and_spoils_nothing(payload: Any, message: str) -> None:
    with transaction.atomic():
        publish("default", {"n": 1})
        with pytest.raises(InvalidEvent, match=message):
            publish("default", payload)
        publish("default", {"n": 2})
    assert OutboxMessage.objects.count() == 2


@pytest.mark.parametrize("payload", ["\\u0000", "a \\ backslash", "größe 🎉", {"": None}, [], 0, None, 2**70, True])
def test_odd_but_valid_values_are_stored(payload: Any) -> None:
    with transaction.atomic():
        publish("default", payload)
        publish_many("default", [{"payload": payload}])
    assert [message.payload for message in OutboxMessage.objects.all()] == [payload] * 2


def test_a_payload_that_contains_itself_is_refused() -> None:
    payload: dict[str, Any] = {}
    payload["self"] = payload
    with transaction.atomic(), pytest.raises(InvalidEvent, match=r"nested|Circular"):
        publish("default", payload)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "a\x00"}, "^key contains"),
        ({"key": 1.5}, "^key must be a string"),
        ({"key": "x" * 2001}, "^key has 2,001 bytes; at most 2,000 are allowed"),
        ({"host_id": "é" * 1001}, "^host_id has 2,002 bytes; at most 2,000 are allowed"),
        ({"host_id": ["x"]}, "^host_id must be"),
        ({"type": None}, "^type must be a string"),
        ({"type": "\x00"}, "^type contains"),
        ({"type": "x" * 2001}, "^type has 2,001 bytes"),
        ({"to_group": ""}, "^to_group must be the name of a group"),
        ({"metadata": [1]}, "^metadata must be a mapping"),
        ({"metadata": {"n": float("nan")}}, r'^metadata\["n"\] is nan'),
        ({"deliver_at": "tomorrow"}, "^deliver_at must be a datetime with a time zone"),
        ({"deliver_at": dt.datetime(2030, 1, 1)}, "^deliver_at must be"),
        ({"dedup_key": "\x00"}, "^dedup_key contains"),
        ({"dedup_key": "x" * 1001}, "^dedup_key has 1,001 bytes; at most 1,000 are allowed"),
        ({"key": True}, "^key must be a string, a whole number or a UUID, not True"),
        ({"key": Decimal("1")}, "^key must be a string"),
        ({"key": dt.date(2030, 1, 1)}, "^key must be a string"),
        ({"key": Topic(name="orders")}, "^key must be a string, .* not an object of Topic: give its id"),
        ({"key": 10**5000}, "^key is too long a number: .* Use a digest"),
        ({"key": [10**5000]}, "^key must be a string, a whole number or a UUID, not a value of type list"),
        ({"type": 10**5000}, "^type must be a string .* not a value of type int"),
        ({"metadata": 10**5000}, "^metadata must be a mapping, not a value of type int"),
        ({"metadata": {"n": 10**5000}}, r'^metadata\["n"\] is of type int'),
        ({"metadata": {10**5000: 1}}, "^metadata"),
        (
            {"deliver_at": dt.datetime(2030, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=16)))},
            "^deliver_at .* 16 hours",
        ),
        (
            {"deliver_at": dt.datetime(2030, 1, 1, tzinfo=dt.timezone(-dt.timedelta(hours=20)))},
            "^deliver_at .* 16 hours",
        ),
        ({"deliver_at": dt.datetime.max.replace(tzinfo=dt.UTC)}, "^deliver_at is 9999-12-31.* the years 1 to 9999"),
        ({"deliver_at": dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=9)))}, "^deliver_at is 0001"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    for attempt in (
        lambda: publish("default", 1, **options),
        lambda: publish_many("default", [{"payload": 1, **options}]),
        lambda: publish_on_commit("default", 1, **options),
    ):
        with transaction.atomic(), pytest.raises(InvalidEvent, match=message.replace("^", "")):
            attempt()
    assert not OutboxMessage.objects.exists()


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("key", "stored"),
    [
        ("", ""),
        (0, "0"),
        (-(10**1998), f"-1{'0' * 1998}"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (Colour.RED, "red"),
        (http.HTTPStatus.OK, "200"),
    ],
)
def test_a_key_is_the_text_of_a_string_a_whole_number_or_a_uuid(key: Any, stored: str) -> None:
    with transaction.atomic():
        publish("default", 1, key=key)
    assert OutboxMessage.objects.get().key == stored


@pytest.mark.parametrize(
    "zone",
    [
        dt.timedelta(hours=15, minutes=59),
        -dt.timedelta(hours=15, minutes=59),
        dt.timedelta(seconds=-1),
        dt.timedelta(microseconds=1),
    ],
)
def test_a_time_that_is_not_refused_is_stored(zone: dt.timedelta) -> None:
    for moment in (dt.datetime(1, 1, 3, tzinfo=dt.timezone(zone)), dt.datetime(9999, 12, 30, tzinfo=dt.timezone(zone))):
        with transaction.atomic():
            publish("default", 1, deliver_at=moment)
    assert DelayedMessage.objects.count() == 2


TIMES = ["infinity", "-infinity", "9999-12-31 00:00+00", "0001-01-01 23:59+00", "0044-03-15 00:00+00 BC"]


@pytest.mark.parametrize("moment", TIMES)
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("outbox_message_t", "created_at"),
        ("outbox_delayed_message", "created_at"),
        ("outbox_delayed_message", "deliver_at"),
    ],
)
def test_a_time_that_python_does_not_have_is_refused_in_plain_sql(table: str, column: str, moment: str) -> None:
    columns = {"payload": "1", **({"deliver_at": "2030-01-01"} if "delayed" in table else {}), column: moment}
    with (
        connection.cursor() as cursor,
        pytest.raises(IntegrityError, match=f'violates check constraint "{table}_times_fit"'),
    ):
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})",
            list(columns.values()),
        )


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        ("id", "1000000000000000", "id 1000000000000000 has not been given out"),
        ("xid", "'3'", "xid must be the publishing transaction, .*, not 3"),
        ("xid", "'1000000000000000'", "xid must be the publishing transaction, .*, not 1000000000000000"),
    ],
)
def test_what_the_database_numbers_is_not_given_by_publishers(column: str, value: str, error: str) -> None:
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match=error):
        cursor.execute(f"INSERT INTO outbox_message_t ({column}, payload) VALUES ({value}, '1')")


def test_the_documented_statement_fails_where_the_topic_is_misspelt() -> None:
    page = Path(__file__).parents[2] / "docs" / "publishing.md"
    (statement,) = re.findall(r"```sql\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    with connection.cursor() as cursor:
        with pytest.raises(IntegrityError, match='null value in column "topic_id"'):
            cursor.execute(statement.replace("orders.events", "order.events"))
        cursor.execute(statement)
    assert OutboxMessage.objects.count() == 1


@pytest.mark.parametrize(("column", "error"), [("xid", "xid must be"), ("id", "has not been given out")])
def test_what_is_copied_brings_none_along_either(column: str, error: str) -> None:
    with (
        connection.cursor() as cursor,
        pytest.raises(psycopg.errors.CheckViolation, match=error),
        transaction.atomic(),
        cursor.copy(f"COPY outbox_message_t ({column}, payload) FROM STDIN") as copy,
    ):
        copy.write_row(("1000000000000000", "1"))
    assert not OutboxMessage.objects.exists()


@pytest.mark.parametrize("column", ["type", "key", "host_id", "user_id", "to_group"])
@pytest.mark.parametrize("table", ["outbox_message_t", "outbox_delayed_message"])
def test_a_value_that_no_dead_letter_could_hold_is_refused_in_plain_sql_too(table: str, column: str) -> None:
    others = ", deliver_at" if table == "outbox_delayed_message" else ""
    insert = f"INSERT INTO {table} ({column}, payload{others}) SELECT repeat('é', %s), '1'{others and ', now()'}"
    with connection.cursor() as cursor:
        cursor.execute(insert, [1000])
        with (
            pytest.raises(IntegrityError, match=f'violates check constraint "{table}_texts_fit"'),
            transaction.atomic(),
        ):
            cursor.execute(insert, [1001])


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a\x00",
        "\ud800",
        "a b",
        "orders\n",
        "x" * 201,
        None,
        7,
        b"default",
        ["a"],
        {},
        pytest.param(10**5000, id="long"),
    ],
)
def test_an_invalid_topic_name_is_refused_and_spoils_nothing(name: Any) -> None:
    with transaction.atomic():
        for attempt in (
            lambda: publish(name, 1),
            lambda: publish_many(name, [{"payload": 1}]),
            lambda: publish_on_commit(name, 1),
        ):
            with pytest.raises(UnknownTopic, match="cannot be the name of a topic"):
                attempt()
        publish("default", 1)
    assert OutboxMessage.objects.count() == 1


def test_an_unknown_topic_is_refused_with_the_nearest_name() -> None:
    with transaction.atomic(), pytest.raises(UnknownTopic, match=r'no topic "order\.event"\. Did you mean "orders\.ev'):
        publish("order.event", {})
    with transaction.atomic(), pytest.raises(UnknownTopic, match="cannot be the name of a topic"):
        publish("no spaces please", {})


@override_settings(PUBSUB={"unknown_topic": "create", "partitions": 3})
def test_an_unknown_topic_is_created_if_that_is_the_policy_and_survives_the_rollback() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        publish("fresh", {})
        raise ZeroDivisionError
    assert Topic.objects.get(name="fresh").total_partitions == 3
    assert not OutboxMessage.objects.exists()
    with transaction.atomic():
        publish("fresh", {})
    (told,) = journal()
    assert (told.actor, told.action, told.topic) == ("first use", "create", "fresh")
    assert (told.reason, told.after) == ('PUBSUB["unknown_topic"] = "create"', {"partitions": 3})


@override_settings(PUBSUB={"unknown_topic": "create"})
def test_a_topic_that_several_publishers_use_first_is_made_and_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both look before either makes it: whichever comes second finds it made."""
    from pubsub.topics import registry

    both_have_looked = threading.Barrier(2)
    create = registry._create_beside

    def create_later(name: str, using: str) -> int:
        both_have_looked.wait(20)
        return create(name, using)

    monkeypatch.setattr(registry, "_create_beside", create_later)

    def publish_first() -> None:
        with transaction.atomic():
            publish("fresh", {})

    for running in [Running(publish_first) for _ in range(2)]:
        running.result()
    assert OutboxMessage.objects.count() == 2
    assert [told.topic for told in journal()] == ["fresh"]


def test_a_topic_made_after_it_was_asked_for_is_found() -> None:
    with transaction.atomic(), pytest.raises(UnknownTopic):
        publish("late", {})
    Topic.objects.create(name="late")
    with transaction.atomic():
        publish("late", {})


def test_a_topic_that_was_undone_is_forgotten() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Topic.objects.create(name="undone")
        publish("undone", {})
        raise ZeroDivisionError
    with transaction.atomic(), pytest.raises(UnknownTopic):
        publish("undone", {})


def test_publish_many_keeps_the_order_of_a_generator_and_mixes_every_kind() -> None:
    due = timezone.now() + dt.timedelta(days=1)

    def events() -> Any:
        yield {"payload": 1, "type": "a", "key": 1}
        yield {"payload": 2, "dedup_key": "once"}
        yield {"payload": 3, "dedup_key": "once"}
        yield {"payload": 4, "deliver_at": due}
        yield {"payload": 5, "metadata": {"m": 1}, "host_id": "h", "user_id": 9, "to_group": "g"}

    with transaction.atomic():
        assert publish_many("default", events()) == 5
    assert [message.payload for message in OutboxMessage.objects.order_by("id")] == [1, 2, 5]
    assert DelayedMessage.objects.get().payload == 4
    with transaction.atomic():
        assert publish_many("default", []) == 0


@pytest.mark.timeout(20)
def test_publish_many_takes_a_generator_that_uses_the_connection_itself() -> None:
    def again() -> Iterator[dict[str, Any]]:
        for message in OutboxMessage.objects.order_by("id").iterator(chunk_size=2):
            if message.payload == 2:
                publish("default", "by the generator")
            yield {"payload": message.payload + OutboxMessage.objects.filter(payload=3).count()}

    with transaction.atomic():
        publish_many("default", ({"payload": n} for n in range(5)))
        assert publish_many("default", again()) == 5
    payloads = [message.payload for message in OutboxMessage.objects.order_by("id")]
    assert payloads == [0, 1, 2, 3, 4, "by the generator", 1, 2, 3, 4, 5]


def test_publish_many_holds_a_few_events_in_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub.publishing.write.FEW_EVENTS", 3)
    monkeypatch.setattr("pubsub.publishing.write.COPIED_EVENTS", 3)
    monkeypatch.setattr("pubsub.publishing.write.COPIED_CHARACTERS", 50)
    written = []

    def events() -> Iterator[dict[str, Any]]:
        for payload in [1, 2, 3, 4, "x" * 50, 6, 7]:
            written.append(OutboxMessage.objects.count())
            yield {"payload": payload}

    with transaction.atomic():
        publish_many("default", events())
    assert written == [0, 0, 0, 3, 3, 5, 5]
    assert OutboxMessage.objects.count() == 7


@pytest.mark.parametrize("style", ["ISO, MDY", "German", "SQL, DMY"])
def test_publish_many_gives_each_event_an_id_of_its_own_and_the_time(style: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (before,) = cursor.fetchone()
        cursor.execute("SELECT set_config('datestyle', %s, true)", [style])
        publish_many("default", [{"payload": n} for n in range(1200)])
        cursor.execute("SELECT set_config('datestyle', 'ISO', true)")
        cursor.execute("SELECT clock_timestamp()")
        (after,) = cursor.fetchone()
    ids, times = zip(*OutboxMessage.objects.values_list("event_id", "created_at"), strict=True)
    assert len(set(ids)) == 1200
    assert {(id_.version, id_.variant) for id_ in ids} == {(4, uuid.RFC_4122)}
    assert before < min(times) <= max(times) < after


def test_publish_many_names_the_invalid_event_and_publishes_none() -> None:
    good = {"payload": "tab\t newline\n backslash \\ and \\N"}
    with transaction.atomic():
        publish("default", "before")
        with pytest.raises(InvalidEvent, match=r"^Event 3: payload is nan"):
            publish_many("default", [good, good, {"payload": float("nan")}, good])
        with pytest.raises(InvalidEvent, match=r'^Event 1: there is no option "playload"\. Did you mean "payload"\?'):
            publish_many("default", [{"payload": 1, "playload": 1}])
        with pytest.raises(InvalidEvent, match=r"^Event 1: payload is missing"):
            publish_many("default", [{}])
        with pytest.raises(InvalidEvent, match=r"^Event 1: expected a mapping"):
            publish_many("default", ["text"])  # type: ignore[list-item]
        publish_many("default", [good])
    assert [message.payload for message in OutboxMessage.objects.order_by("id")] == ["before", good["payload"]]


def test_a_database_error_during_copy_is_a_django_error() -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 1")
        publish_many("default", ({"payload": n} for n in range(100_000)))
    assert not OutboxMessage.objects.exists()


def test_deep_nesting_is_refused_when_it_is_published() -> None:
    payload: Any = "x"
    for _ in range(300):
        payload = [payload]
    with transaction.atomic(), pytest.raises(InvalidEvent, match="nested more than 200 levels deep"):
        publish("default", payload)
    with transaction.atomic():
        publish("default", [[n] for n in range(300)])


def test_publish_on_commit_raises_nothing_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub.publishing.write.write", lambda *arguments: 1 / 0)
    with transaction.atomic():
        publish_on_commit("default", 1)
        Topic.objects.create(name="stays")
    assert Topic.objects.filter(name="stays").exists()
    with pytest.raises(ZeroDivisionError):
        publish_on_commit("default", 1)


def test_publish_on_commit_outside_a_transaction_is_one_round_trip(django_assert_num_queries: Any) -> None:
    publish_on_commit("default", "looks the topic up")
    with django_assert_num_queries(1):
        publish_on_commit("default", "plain", key=1, metadata={"m": 1})
    publish_on_commit("default", "first", dedup_key="one")
    publish_on_commit("default", "second", dedup_key="one")
    publish_on_commit("default", "later", deliver_at=timezone.now() + dt.timedelta(hours=1))
    payloads = OutboxMessage.objects.order_by("id").values_list("payload", flat=True)
    assert list(payloads) == ["looks the topic up", "plain", "first"]
    assert DelayedMessage.objects.get().payload == "later"


def test_publish_on_commit_is_refused_under_manual_transaction_management() -> None:
    transaction.set_autocommit(False)
    try:
        with pytest.raises(transaction.TransactionManagementError, match="manual transaction management"):
            publish_on_commit("default", 1)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert not OutboxMessage.objects.exists()


def test_publish_on_commit_waits_for_the_commit_and_needs_it() -> None:
    with transaction.atomic():
        publish_on_commit("default", {"n": 1}, type="t", key=1)
        assert not OutboxMessage.objects.exists()
    assert OutboxMessage.objects.get().payload == {"n": 1}
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        publish_on_commit("default", {"n": 2})
        raise ZeroDivisionError
    publish_on_commit("default", {"n": 3})
    assert OutboxMessage.objects.count() == 2
    with pytest.raises(InvalidEvent, match='there is no option "typ"'):
        publish_on_commit("default", 1, typ="x")


async def closing_connections(work: Awaitable[Any]) -> Any:
    """Awaits it, and leaves no connection open in the thread that Django's synchronous code runs in."""
    try:
        return await work
    finally:
        await sync_to_async(connections.close_all)()


def test_apublish_joins_the_transaction_of_the_code_that_calls_it() -> None:
    async def handle() -> uuid.UUID:
        return await pubsub.apublish("default", {"n": 1}, type="t", key=7)

    with transaction.atomic():
        event_id = async_to_sync(handle)()
        beside_id = publish("default", {"n": 2})
    first, second = OutboxMessage.objects.order_by("id")
    assert (first.event_id, first.key, second.event_id) == (event_id, "7", beside_id)
    assert first.transaction_id == second.transaction_id
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        async_to_sync(handle)()
        raise ZeroDivisionError
    assert OutboxMessage.objects.count() == 2, "what is undone takes the event along"


@pytest.mark.parametrize("inside", [False, True], ids=["in no transaction", "in a transaction of another thread"])
def test_apublish_is_refused_where_there_is_nothing_to_join(inside: bool) -> None:
    # asyncio.run() knows nothing of the thread that it is called in: synchronous code runs in another one.
    with (
        transaction.atomic() if inside else contextlib.nullcontext(),
        pytest.raises(NotInTransaction, match=r"apublish\(\) found no open transaction.*await apublish_on_commit\(\)"),
    ):
        asyncio.run(closing_connections(pubsub.apublish("default", {"n": 1})))
    assert not OutboxMessage.objects.exists()


def test_a_synchronous_function_that_does_both_can_be_awaited() -> None:
    @sync_to_async
    def change_and_publish() -> uuid.UUID:
        with transaction.atomic():
            return publish("default", {"n": 1})

    event_id = asyncio.run(closing_connections(change_and_publish()))
    assert OutboxMessage.objects.get().event_id == event_id


def test_apublish_on_commit_has_committed_when_it_returns() -> None:
    async def look_afterwards() -> int:
        await pubsub.apublish_on_commit("default", {"n": 1}, type="t")
        return await OutboxMessage.objects.acount()

    assert asyncio.run(closing_connections(look_afterwards())) == 1
    with pytest.raises(InvalidEvent):
        asyncio.run(closing_connections(pubsub.apublish_on_commit("default", {"n": 1}, key=True)))


def test_apublish_on_commit_waits_for_the_transaction_of_the_code_that_calls_it() -> None:
    with transaction.atomic():
        async_to_sync(pubsub.apublish_on_commit)("default", {"n": 1})
        assert not OutboxMessage.objects.exists()
    assert OutboxMessage.objects.get().payload == {"n": 1}


def test_a_delayed_event_waits_in_its_own_table() -> None:
    due = timezone.now() + dt.timedelta(hours=1)
    with transaction.atomic():
        event_id = publish("default", {"n": 1}, deliver_at=due)
    assert not OutboxMessage.objects.exists()
    waiting = DelayedMessage.objects.get()
    assert (waiting.event_id, waiting.deliver_at) == (event_id, due)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
class TestAnotherDatabase:
    """`other` is a second connection to the same tables, as a replica's alias or a router would give it."""

    def test_the_open_transaction_must_be_on_the_same_one(self) -> None:
        with (
            transaction.atomic(using="other"),
            pytest.raises(WrongDatabase, match='open transaction is on database "oth'),
        ):
            publish("default", {})

    def test_using_names_it(self) -> None:
        with transaction.atomic(using="other"):
            publish("default", {"n": 1}, using="other")
            publish_many("default", [{"payload": 2}], using="other")
            assert not OutboxMessage.objects.using("default").exists()
        assert OutboxMessage.objects.count() == 2


def test_a_fixture_brings_its_ids_and_xids_along() -> None:
    given = OutboxMessage(id=10**15, xid="3", payload=1, topic_id=1, event_id=uuid.uuid4(), created_at=timezone.now())
    with transaction.atomic():
        DeserializedObject(given).save()
    message = OutboxMessage.objects.get()
    assert (message.id, message.xid) == (10**15, 3)
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match="xid must be"):
        cursor.execute("INSERT INTO outbox_message_t (xid, payload) VALUES ('3', '1')")
