"""Handlers are looked at where they are declared: what could never be called is refused at once."""

from functools import partial
from typing import Any

import pytest

from pubsub import subscribe
from pubsub.errors import InvalidSubscription
from pubsub.subscriptions.declare import Declaration


def nothing() -> None: ...


def two(event: Any, more: Any) -> None: ...


def needs_a_name(event: Any, *, name: str) -> None: ...


def one(event: Any) -> None: ...


def one_and_options(event: Any, retries: int = 3, *args: Any, **options: Any) -> None: ...


class Mailer:
    def send(self, event: Any) -> None: ...

    @staticmethod
    def send_plainly(event: Any) -> None: ...

    @classmethod
    def send_by_class(cls, event: Any) -> None: ...


def declared(handler: Any, **options: Any) -> Declaration:
    return Declaration(topic="default", group="readers", handler=handler, **options)


@pytest.mark.parametrize("handler", [nothing, two, needs_a_name, Mailer.send, Mailer, partial(two, 1, 2)])
def test_a_handler_that_cannot_be_called_with_one_argument_is_refused(handler: Any) -> None:
    with pytest.raises(InvalidSubscription, match=r"cannot be called with one argument, the event\. .*subscribe\(…\)"):
        declared(handler)
    with pytest.raises(InvalidSubscription, match=r"one argument, the list of events\."):
        declared(handler, batch=True)


@pytest.mark.parametrize(
    "handler",
    [one, one_and_options, Mailer().send, Mailer.send_plainly, Mailer.send_by_class, partial(two, 1), print, id],
)
def test_whatever_can_be_is_accepted(handler: Any) -> None:
    assert declared(handler).handler is handler


def test_a_decorated_method_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidSubscription, match=r"Wrong\.handle\(self, event\) cannot be called with one argument"):

        class Wrong:
            @subscribe("default", group="methods")
            def handle(self, event): ...  # type: ignore[no-untyped-def]


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(InvalidSubscription, match=r"A handler must be a function, not 'shop\.send'"):
        declared("shop.send")
