"""A group that has another name in the code continues under it, from where it was."""

import datetime as dt

import pytest
from django.utils import timezone

from pubsub.control import dry_run, rename_group, subscriptions_of
from pubsub.errors import PartitionInUse, Refused
from pubsub.models import ConsumerOffset, DeadLetter, OperatorEvent, Subscription
from tests.control.helpers import GROUP, TOPIC, WHO, fill, make_topic, reread, subscribe
from tests.factories import DeadLetterFactory, DelayedMessageFactory, LeaseFactory, MemberFactory, SampleFactory
from tests.handlers import Recorder, declare, drain
from tests.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def group() -> None:
    topic = make_topic()
    subscribe()
    fill(5)
    reread()
    DeadLetterFactory(topic=topic, group_id=GROUP, c_offset=99)
    SampleFactory(topic=topic, group_id=GROUP)
    DelayedMessageFactory(topic=topic, to_group=GROUP)


def test_it_continues_where_it_was_under_the_new_name() -> None:
    fill(2, start=5)
    renamed = rename_group(TOPIC, GROUP, "post", **WHO, reason="a better name")
    assert (renamed.before, renamed.after) == (GROUP, "post")
    assert sorted(reread("post")) == [5, 6]
    assert list(DeadLetter.objects.values_list("group_id", flat=True)) == ["post"]
    assert list(Subscription.objects.values_list("group_id", flat=True)) == ["post"]
    event = OperatorEvent.objects.get(action="rename")
    assert (event.group_id, event.before, event.after) == ("post", {"group": GROUP}, {"group": "post"})
    assert event.reason == "a better name"


def test_nothing_of_the_former_name_is_left() -> None:
    rename_group(TOPIC, GROUP, "post", **WHO)
    left = []
    from django.apps import apps

    for model in apps.get_app_config("pubsub").get_models():
        names = {field.name for field in model._meta.get_fields()}
        for name in ("group_id", "to_group"):
            if name in names and model is not OperatorEvent and model.objects.filter(**{name: GROUP}).exists():
                left.append(model.__name__)
    assert left == []


def test_a_dry_run_changes_nothing() -> None:
    with dry_run(using="default"):
        rename_group(TOPIC, GROUP, "post", **WHO)
    assert [it.group_id for it in subscriptions_of(GROUP, using="default")] == [GROUP]
    assert not OperatorEvent.objects.filter(action="rename").exists()


def test_it_is_refused_while_a_worker_is_running_for_it() -> None:
    topic = Subscription.objects.get().topic
    member = MemberFactory(topic=topic, group_id=GROUP, worker_id="worker-7")
    with pytest.raises(PartitionInUse, match="worker-7"):
        rename_group(TOPIC, GROUP, "post", **WHO)
    member.last_heartbeat_at = timezone.now() - dt.timedelta(minutes=10)
    member.save()
    LeaseFactory(topic=topic, group_id=GROUP, worker_id="worker-8")
    with pytest.raises(PartitionInUse, match="worker-8"):
        rename_group(TOPIC, GROUP, "post", **WHO)


def test_it_is_refused_while_a_worker_holds_a_cursor(session: Session) -> None:
    session.execute("BEGIN")
    session.execute("SELECT FROM consumer_offsets FOR UPDATE")
    with pytest.raises(PartitionInUse):
        rename_group(TOPIC, GROUP, "post", **WHO)
    session.execute("ROLLBACK")
    rename_group(TOPIC, GROUP, "post", **WHO)


@pytest.mark.parametrize("name", ["", "  "])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="Give the group a name"):
        rename_group(TOPIC, GROUP, name, **WHO)


def test_a_name_that_is_taken_is_refused() -> None:
    drain(declare(Recorder(), topic=TOPIC, group="post"))
    with pytest.raises(Refused, match="already"):
        rename_group(TOPIC, GROUP, "post", **WHO)
    ConsumerOffset.objects.filter(group_id="post").delete()
    Subscription.objects.filter(group_id="post").delete()
    DeadLetterFactory(topic=Subscription.objects.get().topic, group_id="post")
    with pytest.raises(Refused, match="has left dead letters"):
        rename_group(TOPIC, GROUP, "post", **WHO)
