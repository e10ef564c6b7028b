"""A consumer process that serves its metrics."""

import socket
import urllib.request

import pytest

from tests.consuming.helpers import consumer, publish_each

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work", "effects_table")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_consumer_serves_what_it_has_handled() -> None:
    port = free_port()
    with consumer("plain", "--metrics-port", port) as process:
        publish_each("one", "two")
        process.wait_for('handled "one"')
        process.wait_for('handled "two"')
        # A batch counts after its commit, a moment after the handler's last word.
        for _ in range(200):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                told = answer.read().decode()
            if 'pubsub_events_handled_total{group="readers",topic="work"} 2.0' in told:
                break
        assert 'pubsub_events_handled_total{group="readers",topic="work"} 2.0' in told


def test_a_port_that_is_leased_is_an_error_that_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with consumer("plain", "--metrics-port", taken.getsockname()[1]) as process:
            process.wait_for("django.core.management.base.CommandError: Metrics cannot be served at 127.0.0.1", 30)
            assert process.ends() == 1
