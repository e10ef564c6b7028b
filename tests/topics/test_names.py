"""Patterns: which topics are meant by one, and which words are none."""

import time

import pytest

from pubsub.errors import UnknownTopic
from pubsub.models import Topic
from pubsub.topics.names import check_pattern, expand, is_pattern, matches


@pytest.mark.parametrize(
    ("pattern", "topic", "meant"),
    [
        ("orders.*", "orders.events", True),
        ("orders.*", "orders.eu.events", True),
        ("orders.*", "orders.", True),
        ("orders.*", "orders", False),
        ("orders.*", "ordersXevents", False),
        ("orders.*", "my.orders.events", False),
        ("*", "anything", True),
        ("*.events", "orders.events", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("a*b*bc", "a-b-bc", True),
        ("a*b*bc", "abc", False),
        ("a**c", "ac", True),
        ("*b*", "abc", True),
        ("orders", "orders", True),
        ("orders", "orders.events", False),
    ],
)
def test_which_topics_are_meant(pattern: str, topic: str, meant: bool) -> None:
    assert matches(pattern, topic) is meant


def test_many_stars_take_no_longer() -> None:
    """A client of a stream gives patterns, and the process's only reader looks for what they match."""
    begun = time.process_time()
    for pattern in ("a" + "*" * 198 + "x", "*a" * 40 + "x"):
        assert not matches(pattern, "a" * 60)
        assert matches(pattern, "a" * 60 + "x")
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("wrong", ["orders", "", "orders.?", "orders .*", "[ab]*", "*" * 201, "orders.*\n", None, 5])
def test_what_is_not_a_pattern(wrong: str) -> None:
    with pytest.raises(UnknownTopic, match=r"pattern of topics"):
        check_pattern(wrong)


def test_what_is_a_pattern() -> None:
    assert check_pattern("orders.*") == "orders.*"
    assert is_pattern("*")
    assert not is_pattern("orders.events")


@pytest.mark.django_db
def test_topics_created_later_are_found_too() -> None:
    Topic.objects.create(name="orders.a")
    assert expand("orders.*", using="default") == ["orders.a", "orders.events"]
    Topic.objects.create(name="orders.0")
    assert expand("orders.*", using="default") == ["orders.0", "orders.a", "orders.events"]
    assert expand("none.*", using="default") == []
