"""Connections that break while an answer is on its way: the worker does not know what has become of its question."""

import random
from collections import Counter

import pytest
from django.db import transaction

from pubsub import publish_many
from pubsub.models import DeadLetter
from tests.sessions import database_url, wait_until

from .helpers import claims, consumer, effects, lag, number
from .relay import ByChance, relay

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("effects_table")]


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once", "at_most_once"])
def test_nothing_is_lost_with_them_and_no_event_is_blamed(delivery: str, wide: str) -> None:
    seed = random.randrange(2**31)
    print(f"seed: {seed}")
    chance = ByChance(0.03, seed)
    options = ("--wait-period-ms", 10, "--batch-size", 4)
    settings = {"topic": "wide", "delivery": delivery, "lease_s": 5}
    wanted = []
    with (
        relay(database_url(), chance) as url,
        consumer("plain", *options, url=url, **settings) as one,
        consumer("plain", *options, url=url, **settings) as two,
    ):
        for worker in (one, two):
            worker.wait_for("Consuming")
        chance.begun = True
        for n in range(100):
            with transaction.atomic():
                publish_many("wide", [{"payload": [key, n], "key": key} for key in range(8)])
            wanted += [(key, n) for key in range(8)]
        number()
        wait_until(lambda: lag() == 0 and not claims(), "all is handled", 60)
    assert chance.lost > 20
    done = Counter(map(tuple, effects()))
    blamed = DeadLetter.objects.values_list("payload", "exception_class", "exception_message", "attempts")
    if delivery == "at_most_once":
        assert set(done.values()) == {1}
        assert set(done) | {tuple(payload) for payload, *_ in blamed} == set(wanted)
        return
    assert list(blamed) == []
    assert set(done) == set(wanted)
    if delivery == "transactional":
        assert set(done.values()) == {1}
