"""A handler that fails on everything is a problem, though it tries again; and one may try again now."""

import pytest
from django.db import transaction

from pubsub import publish
from pubsub.dead_letters import actions
from pubsub.models import DeadLetter
from pubsub.monitoring.problems import find_problems
from pubsub.monitoring.status import status
from tests.handlers import Recorder, declare, drain

pytestmark = pytest.mark.django_db(transaction=True)

LATER = (3600, 3600)


def publish_each(*payloads, type="order", together=False):
    """Each in a transaction of its own, or all in one."""
    for group in [payloads] if together else [[payload] for payload in payloads]:
        with transaction.atomic():
            for payload in group:
                publish("default", payload, key="one", type=type)


def failing(**options):
    return declare(Recorder(fails=lambda event: event.payload != "good"), group="billing", retry=LATER, **options)


def said():
    return {problem.code: problem.text for problem in find_problems(status("default"))}


def test_a_handler_that_fails_on_everything_is_a_problem_while_its_retries_last():
    publish_each(*range(4))
    drain(failing())
    assert "failing" not in said(), "four events are too few to judge"
    publish_each(*range(30))
    drain(failing())
    assert "on all of its last 34 events: ValueError." in said()["failing"]


def test_one_that_works_again_is_none():
    publish_each(*range(10))
    drain(failing())
    publish_each("good", "good")
    drain(failing())
    assert "failing" not in said()


def test_some_that_fail_among_many_are_none():
    publish_each(*["good"] * 20, *range(8), *["good"] * 5)
    drain(failing())
    assert DeadLetter.objects.filter(state="retrying").count() == 8
    assert "failing" not in said()


def test_one_large_transaction_that_fails_is_none():
    publish_each(*range(50), together=True)
    drain(failing())
    assert "failing" not in said()


def test_what_the_filter_leaves_out_was_not_handled():
    for n in range(6):
        publish_each(n)
        publish_each("good", "good", type="other")
    drain(failing(where={"type": "order"}))
    assert "on all of its last 6 events" in said()["failing"]


def test_what_is_tried_again_later_can_be_tried_now():
    publish_each(*range(5))
    drain(failing())
    ids = list(DeadLetter.objects.values_list("pk", flat=True))
    assert len(actions.replay(ids, using="default", reason="it is mended")) == 5
    assert actions.replay(ids, using="default") == [], "they are due: there is nothing to hurry"
    mended = Recorder()
    drain(declare(mended, group="billing", retry=LATER))
    assert mended.payloads == [0, 1, 2, 3, 4]
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"resolved"}
    assert said() == {}


def test_a_group_that_stops_names_the_event_that_failed():
    publish_each("good", "bad", "good", "good")
    drain(declare(Recorder(fails=lambda event: event.payload == "bad"), group="ledger", on_failure="stop"))
    (problem,) = find_problems(status("default"))
    assert (problem.code, problem.offset) == ("stopped", 2)
    assert "behind failed event 2 (ValueError)" in problem.text


def test_a_group_that_waits_for_a_retry_names_the_event_too():
    publish_each("good", "bad", "good")
    declared = declare(
        Recorder(fails=lambda event: event.payload == "bad"), group="ledger", on_failure="stop", retry=LATER
    )
    drain(declared)
    (problem,) = find_problems(status("default"))
    assert (problem.code, problem.offset) == ("waits-for-retry", 2)
    assert "(ValueError), in 59 min" in problem.text or "(ValueError), in 1 h" in problem.text
