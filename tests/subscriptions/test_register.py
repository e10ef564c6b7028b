"""What is said of a group that is new: where it begins, and what it will not get."""

import io
import json
import logging
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pubsub.models import ConsumerLag, OperatorEvent, Subscription
from pubsub.subscriptions.declare import Registry
from pubsub.subscriptions.register import register_subscription
from tests.consuming.helpers import number, publish_each
from tests.handlers import Recorder, declare, drain

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("wide")]


def said(caplog: pytest.LogCaptureFixture, **options: Any) -> tuple[int, str]:
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="pubsub.subscriptions.register"):
        register_subscription(declare(Recorder(), topic="wide", **options), using="default")
    (line,) = (record for record in caplog.records if record.name == "pubsub.subscriptions.register")
    return line.levelno, line.getMessage()


def test_a_new_group_says_where_it_begins_and_what_it_leaves_out(caplog: pytest.LogCaptureFixture) -> None:
    assert said(caplog, group="first", start="latest") == (
        logging.INFO,
        "group first begins on topic wide at offset 1",
    )
    for n in range(12):
        publish_each(n, topic="wide", key=n)
    number()
    back = "`pubsub_group seek invoices --topic wide --to earliest` goes back to them"
    assert said(caplog, group="invoices", start="latest") == (
        logging.WARNING,
        f"group invoices begins on topic wide at offset 13, behind 12 older events; {back}",
    )
    assert said(caplog, group="all", start="earliest") == (logging.INFO, "group all begins on topic wide at offset 1")
    level, message = said(caplog, group="some", start=12)
    assert (level, "at offset 12, behind 11 older events;" in message) == (logging.WARNING, True)


def test_a_group_that_is_there_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    declaration = declare(Recorder(), topic="wide")
    (new,) = register_subscription(declaration, using="default")
    assert (new.topic, new.group, new.offset, new.older) == ("wide", "readers", 1, 0)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert register_subscription(declaration, using="default") == []
    assert not caplog.records


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    handler, registry = Recorder(), Registry()
    registry.add(declare(handler, topic="wide", start="latest", group="invoices"))
    monkeypatch.setattr("pubsub.management.commands.pubsub_group.registry", registry)
    return handler


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("pubsub_group", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_a_release_creates_the_group_before_what_it_is_to_handle_is_published(readers: Recorder) -> None:
    publish_each("old", topic="wide")
    number()
    assert run("create", "invoices", "--dry-run").startswith(
        "group invoices begins on topic wide at offset 2, behind 1"
    )
    assert not Subscription.objects.filter(group_id="invoices").exists()
    made = json.loads(run("create", "invoices", "--actor=olivia", "--reason=release 7", "--format=json"))
    assert made == [{"topic": "wide", "group": "invoices", "offset": 2, "older": 1}]
    told = OperatorEvent.objects.get(action="subscribe")
    assert (told.actor, told.reason, told.group_id) == ("olivia", "release 7", "invoices")
    publish_each("new", topic="wide")
    assert ConsumerLag.objects.filter(group_id="invoices").exists()
    drain(declare(readers, topic="wide", start="latest", group="invoices"))
    assert readers.payloads == ["new"]
    assert run("create", "invoices") == 'Group "invoices" is subscribed already, as declared.\n'


def test_a_group_that_no_handler_declares_is_refused(readers: Recorder) -> None:
    with pytest.raises(CommandError, match='No handler is declared for group "invoice"; there are: invoices'):
        run("create", "invoice")
