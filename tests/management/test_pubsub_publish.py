"""JSON lines on standard input become events, and what cannot be one is named."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from pubsub.models import DelayedMessage, OutboxMessage, Topic
from pubsub.topics import registry

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "imports.events"
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def made_topic() -> Iterator[None]:
    registry.create_topics(connection, {TOPIC: {}})
    yield
    registry.forget_ids()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Publish:
    """Runs the command on some input, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def __call__(self, *lines: Any, topic: str = TOPIC, exit_code: int = 0, err: Any = None, **options: Any) -> str:
        data = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        out, self.err = io.StringIO(), err or io.StringIO()
        if exit_code:
            with pytest.raises(SystemExit) as ended:
                call_command("pubsub_publish", topic, stdout=out, stderr=self.err, **options)
            assert ended.value.code == exit_code
        else:
            call_command("pubsub_publish", topic, stdout=out, stderr=self.err, **options)
        return out.getvalue().rstrip("\n")

    @property
    def errors(self) -> list[str]:
        return self.err.getvalue().splitlines()


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Publish:
    return Publish(monkeypatch)


def payloads() -> list[Any]:
    return [message.payload for message in OutboxMessage.objects.order_by("id")]


def test_each_line_has_the_options_of_publish(publish: Publish) -> None:
    said = publish(
        {
            "payload": {"id": 1},
            "type": "order.created",
            "key": 7,
            "host_id": "h",
            "user_id": "u",
            "metadata": {"trace": "t"},
            "to_group": "g",
        },
        {"payload": None},
    )
    first, second = OutboxMessage.objects.order_by("id")
    assert (first.payload, first.type, first.key, first.metadata) == ({"id": 1}, "order.created", "7", {"trace": "t"})
    assert (first.host_id, first.user_id, first.to_group, first.topic.name) == ("h", "u", "g", TOPIC)
    assert (second.payload, second.type, second.key, second.metadata) == (None, "", None, {})
    assert said == "Published 2 events to imports.events, from 2 lines."
    assert publish.errors == []


def test_command_options_apply_to_lines_without_them(publish: Publish) -> None:
    publish(
        {"payload": {"customer": {"id": 5}}},
        {"payload": {"customer": {"id": 5}}, "type": "mine", "key": "k", "host_id": "h", "user_id": "u"},
        type="order.imported",
        key_field="customer.id",
        host_id="importer",
        user_id="cron",
    )
    found = [(it.type, it.key, it.host_id, it.user_id) for it in OutboxMessage.objects.order_by("id")]
    assert found == [("order.imported", "5", "importer", "cron"), ("mine", "k", "h", "u")]


def test_raw_lines_are_payloads(publish: Publish) -> None:
    publish({"payload": 1}, [1, "ü"], "text", None, 12345678901234567890, raw=True)
    assert payloads() == [{"payload": 1}, [1, "ü"], "text", None, 12345678901234567890]


def test_delay_and_deduplication(publish: Publish) -> None:
    publish(
        {"payload": 1, "dedup_key": "a"},
        {"payload": 2, "dedup_key": "a"},
        {"payload": 3, "deliver_at": "2099-01-01T00:00:00Z"},
    )
    assert payloads() == [1]
    assert DelayedMessage.objects.get().deliver_at.isoformat() == "2099-01-01T00:00:00+00:00"


def test_blank_lines_are_skipped_and_the_last_line_needs_no_end(publish: Publish) -> None:
    said = publish(b'  \n\r\n{"payload": 1}\r\n\n{"payload": 2}')
    assert payloads() == [1, 2]
    assert said == "Published 2 events to imports.events, from 5 lines."


def test_empty_input_is_not_an_error(publish: Publish) -> None:
    assert publish() == "Published 0 events to imports.events, from 0 lines."


BAD = [
    (b"{", "expected JSON, but at column 1: Expecting property name"),
    (b'{"payload": 1} {"payload": 2}', "expected JSON, but at column 16: Extra data."),
    (b"[1]", 'expected an object such as {"payload": {"id": 1}, "type": "order.created"}, got [1]. If each line is a'),
    (b'{"type": "x"}', "expected an object such as"),
    (b'{"payload": 1, "tpye": "x"}', 'there is no option "tpye". Did you mean "type"?'),
    (b'{"payload": 1, "type": 5}', "type must be a string such as 'order.created', not 5."),
    (b'{"payload": 1, "key": {}}', "key must be a string, a whole number or a UUID, not {}."),
    (b'{"payload": 1, "metadata": [1]}', "metadata must be a mapping, not [1]."),
    (b'{"payload": {"a": "\\u0000"}}', 'payload["a"] contains the character \\u0000'),
    (b'{"payload": {"a": "\\ud800"}}', 'payload["a"] contains half of a surrogate pair'),
    (b'{"payload": {"a": NaN}}', 'payload["a"] is nan, which JSON cannot express'),
    (b'{"payload": 1e999}', "payload is inf, which JSON cannot express"),
    (b'{"payload": 1, "deliver_at": "tomorrow"}', 'deliver_at must be a time such as "2030-01-31T12:00:00Z", not "to'),
    (b'{"payload": 1, "deliver_at": "2030-01-31T12:00:00"}', "deliver_at must be a datetime with a time zone"),
    (b'{"payload": 1, "deliver_at": 5}', "deliver_at must be a datetime with a time zone"),
    (b'{"payload": 1, "dedup_key": "\\u0000"}', "dedup_key contains the character \\u0000"),
    (b'{"payload": "\xff"}', "expected UTF-8, which byte 14 is not."),
    (b'\xef\xbb\xbf{"payload": 1}', "it begins with a byte order mark. Write UTF-8 without one."),
    (b'{"payload": ' + b"[" * 100_000, "expected JSON of a reasonable depth"),
    (b'{"payload": ' + b"1" * 5000 + b"}", "expected JSON of a reasonable depth and with reasonable numbers"),
    (b'{"payload": "' + b"x" * 1_048_577 + b'"}', "payload has 1,048,579 bytes as JSON; at most 1,048,576 are allowed"),
    (b'{"payload": "' + b"x" * 10_000_000 + b'"}', 'it is longer than PUBSUB["max_payload_bytes"] allows.'),
]  # fmt: skip


@pytest.mark.parametrize(("line", "error"), BAD, ids=[error[:40] for _, error in BAD])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_bad_line_is_named_and_the_others_are_published(
    publish: Publish, line: bytes, error: str, dry_run: bool
) -> None:
    said = publish({"payload": 1}, line, {"payload": 3}, exit_code=1, dry_run=dry_run)
    assert payloads() == ([] if dry_run else [1, 3])
    [complaint] = publish.errors
    assert complaint.startswith(f"Line 2: {error}")
    assert said == (
        "2 events could be published to imports.events, from 3 lines. Refused 1."
        if dry_run
        else "Published 2 events to imports.events, from 3 lines. Refused 1."
    )


def test_a_missing_key_is_a_bad_line(publish: Publish) -> None:
    publish({"a": {"b": 1}}, {"a": 1}, {"a": {"b": None}}, raw=True, key_field="a.b", exit_code=1)
    assert publish.errors == [
        f'Line {number}: expected the key at "a.b" of the payload, but there is none.' for number in (2, 3)
    ]


def test_batches_keep_the_order_and_are_one_transaction_each(publish: Publish) -> None:
    lines: list[Any] = [{"payload": n, **({"dedup_key": str(n)} if n % 3 == 0 else {})} for n in range(10)]
    lines.insert(4, b"bad")
    publish(*lines, batch_size=4, exit_code=1)
    assert payloads() == list(range(10))
    transactions = [message.transaction_id for message in OutboxMessage.objects.order_by("id")]
    sizes = [transactions.count(it) for it in dict.fromkeys(transactions)]
    assert sizes == [4, 4, 2]


def test_a_batch_of_large_lines_ends_early(publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub.management.commands.pubsub_publish.BATCH_BYTES", 1000)
    publish(*[{"payload": "x" * 600}] * 4)
    assert OutboxMessage.objects.values("transaction_id").distinct().count() == 2


def test_stop_on_error_publishes_the_lines_before(publish: Publish) -> None:
    said = publish({"payload": 1}, b"bad", {"payload": 3}, exit_code=1, stop_on_error=True)
    assert payloads() == [1]
    assert said == "Published 1 event to imports.events, from 2 lines. Refused 1."


def test_a_dry_run_writes_nothing(publish: Publish, settings: Any) -> None:
    said = publish(*[{"payload": n, "dedup_key": str(n)} for n in range(5)], dry_run=True, batch_size=2)
    assert said == "5 events could be published to imports.events, from 5 lines."
    settings.PUBSUB = {"unknown_topic": "create"}
    publish({"payload": 1}, topic="imports.new", dry_run=True)
    assert payloads() == []
    assert not Topic.objects.filter(name="imports.new").exists()
    publish({"payload": 1}, topic="imports.new")
    assert Topic.objects.filter(name="imports.new").exists()


def test_the_summary_as_json(publish: Publish) -> None:
    said = json.loads(publish({"payload": 1}, b"bad", format="json", exit_code=1))
    assert said == {
        "topic": TOPIC,
        "dry_run": False,
        "published": 1,
        "publishable": 1,
        "refused": 1,
        "last_line": 2,
        "interrupted": False,
    }
    assert json.loads(publish({"payload": 1}, format="json", dry_run=True))["published"] == 0


def test_progress_is_for_terminals(publish: Publish) -> None:
    publish({"payload": 1}, {"payload": 2}, batch_size=1)
    assert publish.errors == []
    publish({"payload": 1}, {"payload": 2}, batch_size=1, err=Terminal())
    assert "\r2 events, 2 lines" in publish.err.getvalue()
    assert publish.err.getvalue().endswith("\r\033[K")


@pytest.mark.parametrize(
    ("topic", "options", "error"),
    [
        ("import.events", {}, 'There is no topic "import.events". Did you mean "imports.events"?'),
        ("import.events", {"dry_run": True}, 'There is no topic "import.events". Did you mean "imports.events"?'),
        (TOPIC, {"database": "elsewhere"}, 'There is no database "elsewhere"; there are: default, other.'),
    ],
)
def test_misuse_is_an_error_of_the_command(publish: Publish, topic: str, options: dict[str, Any], error: str) -> None:
    with pytest.raises(CommandError) as raised:
        publish({"payload": 1}, topic=topic, **options)
    assert error in str(raised.value)
    assert raised.value.returncode == 2


@pytest.mark.parametrize("size", ["0", "-1", "many"])
def test_a_batch_size_that_cannot_be_is_refused(size: str) -> None:
    with pytest.raises(CommandError, match=f"expected a whole number of at least 1, got '{size}'"):
        call_command("pubsub_publish", TOPIC, f"--batch-size={size}")


def test_a_line_that_the_database_refuses_is_reported_with_where_to_continue(publish: Publish) -> None:
    lines = [{"payload": n} for n in range(4)]
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER no_room AFTER INSERT ON outbox_message_t"
            " FOR EACH ROW WHEN (NEW.payload = '3') EXECUTE FUNCTION no_room()"
        )
    try:
        said = publish(*lines, batch_size=2, exit_code=1)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION no_room() CASCADE")
    assert payloads() == [0, 1]
    assert said == "Published 2 events to imports.events, from 2 lines."
    assert publish.errors[0].startswith("The database refused line 3 or one after it: ")


def test_a_topic_that_refuses_events_is_reported_with_where_to_continue(publish: Publish) -> None:
    Topic.objects.filter(name=TOPIC).update(zero_subscribers="refuse")
    said = publish({"payload": 1}, exit_code=1)
    assert said == "Published 0 events to imports.events, from 0 lines."
    [error] = publish.errors
    assert error.startswith('Line 1 and those after it were not published: Topic "imports.events" refuses events')


def start(*arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    """Starts the command as a process of its own, on the tests' database."""
    it = connection.settings_dict
    password = f":{quote(it['PASSWORD'], safe='')}" if it["PASSWORD"] else ""
    name = quote(it["NAME"], safe="")
    url = f"postgres://{quote(it['USER'] or '', safe='')}{password}@{it['HOST']}:{it['PORT'] or 5432}/{name}"
    return subprocess.Popen(
        [sys.executable, "manage.py", "pubsub_publish", *arguments],
        cwd=CHECKOUT,
        env=os.environ | {"DATABASE_URL": url, "PYTHONUNBUFFERED": ""},
        **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options,
    )


def test_lines_are_published_before_the_input_ends() -> None:
    """A stream has no end: each full batch is committed as soon as its last line is there."""
    with start(TOPIC, "--batch-size=2", "--format=json", "--raw") as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n2\n3\n")
        process.stdin.flush()
        wait_for_messages(2)
        assert payloads() == [1, 2]
        process.stdin.write(b"4\n5\n")
        process.stdin.flush()
        wait_for_messages(4)
        out, err = process.communicate(timeout=30)
    assert payloads() == [1, 2, 3, 4, 5]
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["published"] == 5


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_reports_how_many_lines_were_committed(number: int, code: int) -> None:
    with start(TOPIC, "--batch-size=2", "--raw") as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n2\n3\n")
        process.stdin.flush()
        wait_for_messages(2)
        process.send_signal(number)
        assert process.wait(timeout=30) == code
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == b"Published 2 events to imports.events, from 2 lines.\n"
        assert process.stderr.read() == b"Interrupted: line 3 and those after it were not processed.\n"
    assert payloads() == [1, 2]


@pytest.mark.parametrize(("middle", "code"), [(b"2", 0), (b"bad", 1)])
def test_a_closed_pipe_undoes_nothing(middle: bytes, code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with start(TOPIC, "--raw", stdout=writer, stderr=subprocess.STDOUT) as process:
        os.close(writer)
        process.communicate(b"1\n%b\n3\n" % middle, timeout=30)
    assert process.returncode == code
    assert payloads()[-1] == 3


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    """The child may have some 200 MB beyond what it needs to start; the file, and its longest line, have more."""
    path = tmp_path / "lines"
    with path.open("wb") as file:
        for _ in range(300):
            file.write(b'"' + b"x" * 1_000_000 + b'"\n')
        file.write(b"x" * 500_000_000 + b"\n4\n")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (400_000_000, 400_000_000))

    with path.open("rb") as file, start(TOPIC, "--raw", "--dry-run", stdin=file, preexec_fn=limit) as process:
        out, err = process.communicate(timeout=100)
    assert err == b'Line 301: it is longer than PUBSUB["max_payload_bytes"] allows.\n'
    assert out == b"301 events could be published to imports.events, from 302 lines. Refused 1.\n"


def wait_for_messages(count: int) -> None:
    """Waits until another process has committed so many: each look waits for the table's writers to be done."""
    for _ in range(3000):
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*), pg_sleep(0.01) FROM outbox_message_t")
            if cursor.fetchone()[0] >= count:
                return
    raise AssertionError(f"there are not {count} messages after 30 s")


@pytest.fixture
def picky_database() -> Iterator[None]:
    """A site's own constraint, of which this program knows nothing."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE outbox_message_t ADD CONSTRAINT picky CHECK (key <> 'bad')")
        yield
        cursor.execute("ALTER TABLE outbox_message_t DROP CONSTRAINT picky")


def keyed(*keys: str) -> list[dict[str, Any]]:
    return [{"payload": {"secret": key}, "key": key} for key in keys]


@pytest.mark.usefixtures("picky_database")
@pytest.mark.parametrize("batch_size", [1, 2, 1000])
def test_a_line_that_the_database_refuses_costs_itself_alone(publish: Publish, batch_size: int) -> None:
    said = publish(*keyed("a", "bad", "b", "bad", "c"), exit_code=1, batch_size=batch_size)
    assert [message.key for message in OutboxMessage.objects.order_by("id")] == ["a", "b", "c"]
    assert said == "Published 3 events to imports.events, from 5 lines. Refused 2."
    assert [line.split(": ")[0] for line in publish.errors] == ["Line 2", "Line 4"]
    assert 'violates check constraint "picky"' in publish.errors[0]
    assert "secret" not in publish.err.getvalue()


@pytest.mark.usefixtures("picky_database")
def test_nothing_is_published_behind_a_line_that_the_database_refuses_if_so_asked(publish: Publish) -> None:
    said = publish(*keyed("a", "bad", "b", "c"), exit_code=1, batch_size=2, stop_on_error=True)
    assert payloads() == [{"secret": "a"}]
    assert said == "Published 1 event to imports.events, from 2 lines. Refused 1."


def test_a_time_zone_that_there_is_not_costs_its_own_line(publish: Publish) -> None:
    publish({"payload": 1}, {"payload": 2, "deliver_at": "2099-01-01T00:00:00+17:00"}, {"payload": 3}, exit_code=1)
    assert payloads() == [1, 3]
    assert publish.errors == [
        "Line 2: deliver_at is 2099-01-01T00:00:00+17:00, whose time zone is 17:00:00 from UTC; "
        "less than 16 hours are possible."
    ]


def test_a_refused_line_writes_no_control_character(publish: Publish) -> None:
    publish(b'{"payload": 1, "key": ["\x9b2J\x7f"]}'.replace(b"\x9b", "\x9b".encode()), exit_code=1)
    (line,) = publish.errors
    assert line.isprintable()
