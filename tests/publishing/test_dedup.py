"""A dedup key: one event, however often it is published, as long as the key is remembered."""

import threading
import uuid

import pytest
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from pubsub import publish
from pubsub.models import DedupKey, DelayedMessage, OutboxMessage, Topic
from pubsub.sequencing.delayed import move_due_messages
from tests.log import checked_log, names, number
from tests.sessions import Running, Session, together, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def publish_once(name: str, key: str = "once", topic: str = "default") -> uuid.UUID:
    with transaction.atomic():
        return publish(topic, {"n": name}, dedup_key=key)


def test_the_second_gets_the_first_one_s_id(session: Session) -> None:
    first = publish_once("first")
    assert publish_once("second") == first
    with transaction.atomic():
        assert publish("default", {"n": "third"}, dedup_key="once") == first
        assert publish("default", {"n": "fourth"}, dedup_key="once") == first
    number(session)
    assert names(checked_log(session)) == ["first"]


def test_twenty_publish_and_the_first_is_undone(session: Session) -> None:
    """The winner rolls back while the others wait for it: one of them takes its place, all others get its id."""
    all_ready = threading.Barrier(21)
    threads = [Running(together(all_ready, publish_once), f"{n}") for n in range(20)]
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        undone = publish("default", {"n": "undone"}, dedup_key="once")
        all_ready.wait()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        wait_until(lambda: session.execute(waiting).fetchone() == (20,), "all others wait for the winner")
        raise ZeroDivisionError
    told = {thread.result() for thread in threads}
    assert len(told) == 1
    assert told != {undone}
    assert OutboxMessage.objects.get().event_id in told
    assert number(session).messages == 1
    checked_log(session)


def test_an_undone_publication_frees_its_key(session: Session) -> None:
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            publish("default", {"n": "undone"}, dedup_key="once")
            raise ZeroDivisionError
        kept = publish("default", {"n": "kept"}, dedup_key="once")
    assert publish_once("again") == kept
    number(session)
    assert names(checked_log(session)) == ["kept"]


def test_a_key_is_free_when_its_window_is_over(session: Session) -> None:
    with override_settings(PUBSUB={"dedup_window_s": 3600}):
        first = publish_once("first")
        remaining = DedupKey.objects.get().expires_at - timezone.now()
        assert 3500 < remaining.total_seconds() < 3700
        DedupKey.objects.update(expires_at=timezone.now())
        second = publish_once("second")
        assert second != first
        assert publish_once("third") == second
    number(session)
    assert names(checked_log(session)) == ["first", "second"]


def test_many_take_an_expired_key_at_once(session: Session) -> None:
    publish_once("first")
    DedupKey.objects.update(expires_at=timezone.now())
    all_ready = threading.Barrier(8)
    threads = [Running(together(all_ready, publish_once), f"{n}") for n in range(8)]
    assert len({thread.result() for thread in threads}) == 1
    assert OutboxMessage.objects.count() == 2


def test_no_key_and_an_empty_one_mean_that_nothing_is_remembered() -> None:
    for key in ("", None):
        with transaction.atomic():
            ids = {publish("default", {"n": n}, dedup_key=key) for n in range(3)}
        assert len(ids) == 3
    assert not DedupKey.objects.exists()


def test_each_topic_has_its_own_keys() -> None:
    Topic.objects.create(name="elsewhere")
    assert publish_once("here") != publish_once("there", topic="elsewhere")
    assert OutboxMessage.objects.count() == 2


def test_a_delayed_message_holds_its_key_while_it_waits(session: Session) -> None:
    with transaction.atomic():
        first = publish("default", {"n": "delayed"}, dedup_key="once", deliver_at=timezone.now())
    assert publish_once("at once") == first
    assert DelayedMessage.objects.count() == 1
    assert move_due_messages("default") == 1
    assert publish_once("afterwards") == first
    number(session)
    assert names(checked_log(session)) == ["delayed"]
