"""Every list stays fast, however long it grows."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pubsub.admin import showing
from tests.factories import (
    ConsumerOffsetFactory,
    DeadLetterFactory,
    LogCounterFactory,
    LogPartitionCounterFactory,
    SubscriptionFactory,
    TopicFactory,
)

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("model", ["deadletter", "subscription", "topic"])
def test_a_list_asks_the_same_few_questions_however_long_it_is(admin_client, model):
    address = reverse(f"admin:pubsub_{model}_changelist")

    def queries():
        for _ in range(2):  # the first time also fills the caches of content types and so on
            with CaptureQueriesContext(
                connection,
            ) as captured:
                assert admin_client.get(address).status_code == 200
        return captured.captured_queries

    def add(count):
        for _ in range(count):
            topic = TopicFactory()
            LogCounterFactory(topic=topic)
            LogPartitionCounterFactory(topic=topic)
            group = SubscriptionFactory(topic=topic).group_id
            ConsumerOffsetFactory(topic=topic, group_id=group)
            DeadLetterFactory(topic=topic, group_id=group)

    add(2)
    few = queries()
    add(20)
    many = queries()
    assert len(many) == len(few) <= 8
    for query in many:
        sql = query["sql"]
        if "COUNT(*)" in sql and "dead_letter_queue" in sql:
            assert f"LIMIT {showing.COUNT_LIMIT + 1}" in sql
        assert not ("DISTINCT" in sql and "dead_letter_queue" in sql)
