"""All who watch share one look at the database."""

import pytest
from django.db import OperationalError

from pubsub.monitoring import recent
from pubsub.monitoring.recent import RecentStatus

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_look_is_shared_for_a_while_and_so_is_a_failure(monkeypatch, django_assert_num_queries):
    monkeypatch.setattr(recent, "FOR_S", 60)
    shared = RecentStatus()
    with django_assert_num_queries(6):
        assert shared.of("default") is shared.of("default")
    asked = []

    def fails(using):
        asked.append(using)
        raise OperationalError("it is away")

    monkeypatch.setattr(recent, "status", fails)
    failing = RecentStatus()
    for _ in range(3):
        with pytest.raises(OperationalError, match="away"):
            failing.of("default")
    assert asked == ["default"]
    monkeypatch.setattr(recent, "FOR_S", 0)
    with pytest.raises(OperationalError):
        shared.of("default")
