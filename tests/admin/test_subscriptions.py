"""Subscriptions in the admin."""

import pytest
from django.urls import reverse

from tests.admin.pages import text_of
from tests.factories import ConsumerOffsetFactory, LogPartitionCounterFactory, SubscriptionFactory

pytestmark = pytest.mark.django_db


def test_the_lag_is_the_sum_over_the_partitions(sign_in):
    subscription = SubscriptionFactory()
    for partition in range(3):
        LogPartitionCounterFactory(topic=subscription.topic, partition_id=partition, entries=1000)
        ConsumerOffsetFactory(
            topic=subscription.topic, group_id=subscription.group_id, partition_id=partition, passed=partition
        )
    SubscriptionFactory()
    client = sign_in("view_subscription")
    text = text_of(client.get(reverse("admin:pubsub_subscription_changelist")))
    assert "2,997" in text
    assert "not started" in text
    detail = text_of(client.get(reverse("admin:pubsub_subscription_change", args=[subscription.pk])))
    assert "2,997" in detail
    assert "998" in detail


@pytest.mark.parametrize("page", ["add", "change", "delete"])
def test_subscriptions_are_declared_in_code(admin_client, page):
    subscription = SubscriptionFactory()
    arguments = [] if page == "add" else [subscription.pk]
    assert admin_client.post(reverse(f"admin:pubsub_subscription_{page}", args=arguments)).status_code == 403
