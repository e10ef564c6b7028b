"""Listening on a hot standby, which only follows: nothing is numbered there, and nothing is notified."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.test import override_settings

import pubsub
from project.postgres_files import readable_programs, run_as, server_account
from project.postgres_server import Server, _free_port
from tests.sessions import connected_to

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def standby(server: Server) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="standby-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        following = Server(Path(folder))
        following._write_state({"port": _free_port(), "password": urlsplit(server.url()).password})
        account = server_account(following.data)
        programs = readable_programs(following.programs, following.home, account)
        following.data.mkdir(mode=0o700)
        if account:
            os.chown(following.data, account.uid, account.gid)
        copy = ("-R", "-X", "stream", "-c", "fast", "-D", following.data, "-d", server.url("postgres"))
        made = run_as(account, programs / "pg_basebackup", *copy, capture_output=True)
        assert made.returncode == 0, made.stderr
        try:
            following.ensure_running()
            yield following
        finally:
            following.stop()


def test_a_listener_on_a_standby_gets_what_is_numbered_elsewhere(server: Server, standby: Server) -> None:
    address = urlsplit(standby.url())
    elsewhere = {
        "HOST": address.hostname,
        "PORT": address.port,
        "USER": address.username,
        "PASSWORD": address.password,
        "NAME": address.path[1:],
    }
    with (
        override_settings(PUBSUB={"wait_period_ms": 50}),
        psycopg.connect(server.url(), autocommit=True) as primary,
        connected_to(**elsewhere),
        pubsub.listen("default") as events,
    ):
        for n in range(3):
            primary.execute("INSERT INTO outbox_message_t (payload) VALUES (to_jsonb(%s::int))", [n])
            primary.execute("SELECT pubsub_sequence_v1()")
            event = events.get(timeout=15)
            assert event is not None
            assert event.payload == n
