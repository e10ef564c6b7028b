"""Whatever stands on a command line, a command works or ends by a sentence and a code; it never ends by a traceback."""

import argparse
import io
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from hypothesis import strategies as st

import pubsub
from pubsub.models import DelayedMessage, OutboxMessage
from pubsub.subscriptions.declare import Registry
from tests.control.helpers import GROUP, TOPIC, make_topic, subscribe
from tests.factories import DeadLetterFactory
from tests.hostile import any_text, attack, names_anything, values

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]

ENDS_BY_ITSELF = {
    "pubsub_tail": ["--no-follow"],
    "run_cleanup": ["--once"],
    "run_consumer": ["--drain", "--max-events=3", "--wait-period-ms=1"],
}
NOT_HERE = {
    *("--help", "--version", "--settings", "--pythonpath", "--traceback"),  # Django's own
    *("--watch", "--reload"),  # do not end
    *("--liveness-file", "--output"),  # write files
}
COMMANDS = sorted(path.stem for path in (Path(pubsub.__file__).parent / "management/commands").glob("[a-z]*.py"))
SPARKS = "run_spark_job"
"""Starts a machine of Java's, so only its command line is attacked here."""

sensible = st.sampled_from(
    [GROUP, TOPIC, "1", "0", "earliest", "latest", "2h", "1d", "default", "json", "text", "keep", "2030-01-31T12:00"]
)
numbers = st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**63, -1, -(2**63), 10**24, 65535, 65536, 4096]).map(str)
words = st.one_of(sensible, sensible, numbers, any_text)


def parsers(parser: argparse.ArgumentParser, path: list[str]) -> Iterator[tuple[list[str], list[argparse.Action]]]:
    """A command's words, such as `pubsub_group pause`, and what it takes."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in nested:
        for name, inner in action.choices.items():
            yield from parsers(inner, [*path, name])
    if not nested:
        yield path, [it for it in parser._actions if not NOT_HERE & set(it.option_strings)]


def given_to(action: argparse.Action) -> st.SearchStrategy[list[str]]:
    values = words if not action.choices else st.one_of(words, st.sampled_from([str(it) for it in action.choices]))
    if not action.option_strings:
        return st.lists(values, max_size=2) if action.nargs == "*" else values.map(lambda value: [value])
    name = action.option_strings[-1]
    return st.just([name]) if action.nargs == 0 else values.map(lambda value: [f"{name}={value}"])


def lines_of(path: list[str], actions: list[argparse.Action]) -> st.SearchStrategy[list[str]]:
    positional = [given_to(action) for action in actions if not action.option_strings]
    options = st.lists(st.sampled_from([action for action in actions if action.option_strings]), max_size=4)
    rest = options.flatmap(lambda chosen: st.tuples(*map(given_to, chosen)))
    return st.tuples(*positional, rest.map(lambda parts: [word for part in parts for word in part])).map(
        lambda parts: [*path, *ENDS_BY_ITSELF.get(path[0], []), *(word for part in parts for word in part)]
    )


def lines(*commands: str) -> st.SearchStrategy[list[str]]:
    known = [
        lines_of(path, actions)
        for name in commands
        for path, actions in parsers(load_command_class("pubsub", name).create_parser("manage.py", name), [name])
    ]
    return st.one_of(*known)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    monkeypatch.setattr("pubsub.subscriptions.declare.registry", registry)
    pubsub.subscribe(TOPIC, group=GROUP)(print)
    make_topic()
    subscribe()
    DeadLetterFactory()


def how_it_ends(line: list[str]) -> tuple[Any, str]:
    """The exit code, and what is said."""
    out = io.StringIO()
    try:
        call_command(*line, stdout=out, stderr=out)
    except CommandError as ended:
        return ended.returncode, str(ended)
    except SystemExit as ended:
        return ended.code or 0, out.getvalue()
    return 0, out.getvalue()


def ends_in_words(line: list[str]) -> None:
    code, said = how_it_ends(line)
    assert code in (0, 1, 2, 3)
    assert code == 0 or said.strip()


@pytest.mark.timeout(120)
def test_any_command_line(there: None, monkeypatch: pytest.MonkeyPatch) -> None:
    @attack(3000, line=lines(*(name for name in COMMANDS if name not in (SPARKS, "run_consumer"))))
    def run(line: list[str]) -> None:
        given = b'{"payload": 1}\nx\n\xff\n{"payload": 2, "deliver_at": "9999-99-99"}\n'
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        ends_in_words(line)

    run()


@pytest.mark.timeout(120)
def test_any_command_line_of_a_consumer(there: None) -> None:
    @attack(300, line=lines("run_consumer"))
    def run(line: list[str]) -> None:
        ends_in_words(line)

    run()


@pytest.mark.timeout(120)
def test_any_command_line_of_a_spark_job_is_read() -> None:
    parser: Any = load_command_class("pubsub", SPARKS).create_parser("manage.py", SPARKS)
    parser.called_from_command_line = False

    @attack(1500, line=lines(SPARKS))
    def run(line: list[str]) -> None:
        with suppress(CommandError):
            parser.parse_args(line[1:])

    run()


def written(event: Any) -> bytes:
    """As a program might write it."""
    try:
        return json.dumps(event, default=str).encode()
    except (TypeError, ValueError, RecursionError):
        return repr(type(event)).encode()


facts = st.sampled_from(
    ["payload", "type", "key", "host_id", "user_id", "metadata", "deliver_at", "dedup_key", "to_group"]
)
events = st.one_of(values, st.dictionaries(facts, st.one_of(any_text, values)), st.builds(dict, payload=values))
json_lines = st.lists(
    st.one_of(events.map(written), st.binary(), st.sampled_from([b"{" * 5000, b"", b" ", b'{"payload": 1e999}'])),
    max_size=5,
)


@names_anything
@pytest.mark.timeout(120)
@pytest.mark.parametrize("options", [[], ["--raw"], ["--raw", "--key-field=a"]])
def test_any_json_line_is_published_or_refused(options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    @attack(600, 12, given=json_lines.map(b"\n".join))
    def run(given: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        before = OutboxMessage.objects.count() + DelayedMessage.objects.count()
        _, said = how_it_ends(["pubsub_publish", "default", "--format=json", *options])
        result = json.loads(said[said.rindex('{"topic"') :])
        lines = [line for line in given.split(b"\n") if line.strip()]
        assert result["published"] + result["refused"] == len(lines), said
        assert OutboxMessage.objects.count() + DelayedMessage.objects.count() <= before + result["published"]

    run()
