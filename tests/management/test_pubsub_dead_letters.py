"""Dead letters from the command line: found, shown, replayed, discarded; and told what came of it."""

import io
import json
import uuid
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pubsub.management.operator_command import system_user
from pubsub.models import DeadLetter
from tests.audit import journal
from tests.factories import AttemptFactory, DeadLetterFactory, TopicFactory

pytestmark = pytest.mark.django_db

State = DeadLetter.State


def run(*arguments: Any, exit_code: int = 0) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = 0
    try:
        call_command("pubsub_dead_letters", *map(str, arguments), stdout=out, stderr=err)
    except SystemExit as ended:
        code = int(ended.code or 0)
    except CommandError as error:
        code = error.returncode
        err.write(str(error))
    assert code == exit_code, err.getvalue()
    return out.getvalue(), err.getvalue()


def run_json(*arguments: Any, exit_code: int = 0) -> Any:
    return json.loads(run(*arguments, "--format=json", exit_code=exit_code)[0])


def states() -> list[str]:
    return list(DeadLetter.objects.order_by("pk").values_list("state", flat=True))


def test_the_list_shows_the_newest_and_the_next_page() -> None:
    letters = DeadLetterFactory.create_batch(5, topic=TopicFactory(name="orders"))
    found = run_json("list", "--limit=2")
    assert [it["id"] for it in found] == [letters[4].pk, letters[3].pk]
    assert "payload" not in found[0]
    _, hint = run("list", "--limit=2")
    assert hint == f"There may be more: add --before {letters[3].pk}.\n"
    assert [it["id"] for it in run_json("list", f"--before={letters[3].pk}")] == [it.pk for it in letters[2::-1]]
    text, _ = run("list")
    assert len(text.splitlines()) == 5
    assert f"orders:{letters[0].c_offset}" in text


FILTERS: list[tuple[str, dict[str, Any]]] = [
    ("--group=wanted", {"group_id": "wanted"}),
    ("--type=order.wanted", {"type": "order.wanted"}),
    ("--exception=errors.Wanted", {"exception_class": "errors.Wanted"}),
    ("--exception=ValueError", {"exception_class": "builtins.ValueError"}),
    ("--key=wanted", {"key": "wanted"}),
    ("--host=wanted", {"host_id": "wanted"}),
    ("--transaction=00000000-0000-0000-0000-000000000001", {"transaction_id": uuid.UUID(int=1)}),
]


@pytest.mark.parametrize(("argument", "fields"), FILTERS)
def test_the_list_and_the_actions_take_the_same_filters(argument: str, fields: dict[str, Any]) -> None:
    DeadLetterFactory()
    wanted = DeadLetterFactory(**fields)
    DeadLetterFactory()
    assert [it["id"] for it in run_json("list", argument)] == [wanted.pk]
    assert run_json("discard", argument)["events"] == 1
    assert states() == [State.DEAD, State.DISCARDED, State.DEAD]


def test_topic_and_time() -> None:
    DeadLetterFactory.create_batch(2, topic=TopicFactory(name="orders"))
    DeadLetterFactory(topic=TopicFactory(name="payments"))
    assert len(run_json("list", "--topic=orders", "--since=1h")) == 2
    assert run_json("list", "--until=1h") == []
    assert run("list", "--since=2099-01-01")[1] == "No dead letters match.\n"
    assert run_json("replay", "--topic=orders", "--since=1h", "--dry-run")["events"] == 2


def test_show_prints_everything_and_redacts(settings: Any) -> None:
    settings.PUBSUB = {"redact_paths": ["card"]}
    letter = DeadLetterFactory(
        payload={"card": "4111-1111", "total": 3},
        exception_message="4111-1111 was refused",
        host_id="tenant-1",
        user_id="olga",
    )
    AttemptFactory(letter=letter)
    for form in ("text", "json"):
        told, _ = run("show", letter.pk, f"--format={form}")
        assert "4111" not in told
        assert "[redacted] was refused" in told
        revealed, _ = run("show", letter.pk, "--reveal", f"--format={form}")
        assert "4111-1111 was refused" in revealed
    told_json = run_json("show", letter.pk)
    assert (told_json["host_id"], told_json["user_id"]) == ("tenant-1", "olga")
    assert told_json["payload"] == {"card": "[redacted]", "total": 3}
    assert told_json["history"][0]["attempt"] == 1
    assert "send_confirmation" in told_json["traceback"]
    assert run("show", 99_999_999, exit_code=1)[1] == "There is no dead letter 99999999."


def test_show_redacts_what_the_rest_of_the_transaction_holds(settings: Any) -> None:
    settings.PUBSUB = {"redact_paths": ["card"]}
    together = {"topic": TopicFactory(), "group_id": "mail", "partition_id": 0, "transaction_id": uuid.uuid4()}
    DeadLetterFactory(**together, payload={"card": "4111-1111"})
    letter = DeadLetterFactory(**together, payload={}, exception_message="4111-1111 was refused")
    assert "[redacted] was refused" in run("show", letter.pk)[0]
    assert "4111-1111 was refused" in run("show", letter.pk, "--reveal")[0]


@pytest.mark.parametrize(("action", "state"), [("replay", State.RETRYING), ("discard", State.DISCARDED)])
def test_a_dry_run_shows_exactly_what_would_happen(action: str, state: str) -> None:
    topic, together = TopicFactory(), uuid.uuid4()
    letters = DeadLetterFactory.create_batch(3, topic=topic, transaction_id=together)
    done = DeadLetterFactory(topic=topic, state=State.RESOLVED)
    DeadLetterFactory(topic=topic)
    arguments = (action, letters[0].pk, done.pk, 99_999_999)
    foretold = run_json(*arguments, "--dry-run")
    assert states() == [State.DEAD] * 3 + [State.RESOLVED, State.DEAD]
    happened = run_json(*arguments, "--reason=the server is up")
    assert states() == [state] * 3 + [State.RESOLVED, State.DEAD]
    assert foretold.pop("dry_run")
    assert not happened.pop("dry_run")
    assert foretold == happened
    assert (happened["events"], happened["transactions"]) == (3, 1)
    assert happened["unchanged"] == [{"id": done.pk, "state": "resolved"}, {"id": 99_999_999, "state": None}]
    event = journal().get()
    assert event.reason == "the server is up"
    assert event.actor == system_user()
    DeadLetterFactory(topic=topic, group_id="others")
    run_json(action, "--group=others", "--actor=olivia")
    assert journal().get(group_id="others").actor == "olivia"


def test_the_text_says_it_in_a_sentence() -> None:
    letter = DeadLetterFactory()
    assert run("replay", letter.pk, "--dry-run")[0].endswith("1 event of 1 transaction would be replayed.\n")
    assert run("replay", letter.pk)[0].endswith("1 event of 1 transaction replayed.\n")
    assert run("replay", letter.pk, exit_code=1)[0].endswith(
        "not changed: retrying\n0 events of 0 transactions replayed.\n"
    )


def test_rows_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub.management.commands.pubsub_dead_letters.ROWS_TOLD", 3)
    monkeypatch.setattr("pubsub.dead_letters.actions.BATCH_SIZE", 2)
    DeadLetterFactory.create_batch(7, topic=TopicFactory())
    told, _ = run("discard", "--all")
    assert len(told.splitlines()) == 5
    assert "and 4 more" in told
    assert states() == [State.DISCARDED] * 7


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["replay"], "Say which ones to replay: ids, --transaction, filters such as --group and --type, or --all."),
        (["discard", "--topic=nothing"], 'There is no topic "nothing".'),
        (["list", "--database=elsewhere"], 'There is no database "elsewhere"; there are: default, other.'),
        (["list", "--transaction=x"], "expected a UUID, got 'x'"),
        (["list", "--since=yesterday"], "expected a time such as 2030-01-31T12:00, or how long ago, such as 90m"),
        (["show", "x"], "expected a whole number of at least 1, got 'x'"),
    ],
)
def test_misuse_is_explained(arguments: list[str], error: str) -> None:
    DeadLetterFactory()
    out = io.StringIO()
    with pytest.raises(CommandError) as raised:
        call_command("pubsub_dead_letters", *arguments, stdout=out)
    assert error in str(raised.value)
    assert states() == [State.DEAD]


def test_no_control_character_of_a_publisher_s_reaches_the_terminal() -> None:
    hostile = "\x1b[2J\x9b2J\nforged\x7f"
    letter = DeadLetterFactory(
        payload={hostile: hostile}, type=hostile, key=hostile, exception_message=hostile, traceback=f"{hostile}\n"
    )
    for arguments in (("list",), ("show", letter.pk), ("show", letter.pk, "--format=json"), ("replay", letter.pk)):
        told, _ = run(*arguments)
        assert all(line.isprintable() for line in told.split("\n")), arguments
    assert len(run("list")[0].splitlines()) == 1
