"""A real PgBouncer in transaction mode, in front of the test database."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connections

from project.postgres_files import server_account
from tests.sessions import Session, connected_to, wait_until

CONFIGURATION = """
[databases]
* = {target}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool_size}
ignore_startup_parameters = extra_float_digits,options
server_idle_timeout = 1
logfile =
"""


def find_pgbouncer() -> str:
    found = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if found is None:
        message = "pgbouncer is not installed (`make system-packages` does that)"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return found


@pytest.fixture(params=[1, 3], ids=["one-connection", "three-connections"])
def through_pooler(request: pytest.FixtureRequest, session: Session) -> Iterator[None]:
    """All of Django's connections go through PgBouncer; `session` goes straight to the server."""
    program = find_pgbouncer()
    direct = dict(connections["default"].settings_dict)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    account = server_account()  # PgBouncer refuses root, just as PostgreSQL does
    with tempfile.TemporaryDirectory(prefix="pgbouncer-", dir="/tmp") as folder:
        configuration = Path(folder) / "pgbouncer.ini"
        configuration.touch(mode=0o600)
        configuration.write_text(
            CONFIGURATION.format(target=_target(direct), listen_port=port, pool_size=request.param)
        )
        options = {}
        if account:
            os.chown(folder, *account)
            os.chown(configuration, *account)
            options = {"user": account.uid, "group": account.gid}
        log = (Path(folder) / "log").open("w+")
        bouncer = subprocess.Popen(
            [program, configuration], cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options
        )  # type: ignore[call-overload]
        try:
            wait_until(lambda: _answers(bouncer, direct["NAME"], direct["USER"], port), "PgBouncer answers")
            with connected_to(HOST="127.0.0.1", PORT=port, CONN_MAX_AGE=60, DISABLE_SERVER_SIDE_CURSORS=True):
                yield
        finally:
            bouncer.kill()
            bouncer.wait()
            log.close()


def _target(database: dict[str, Any]) -> str:
    known = {
        "host": database["HOST"] or "127.0.0.1",
        "port": database["PORT"] or 5432,
        "user": database["USER"],
        "password": database["PASSWORD"],
    }
    # PgBouncer takes no empty values.
    return " ".join("{}='{}'".format(name, str(value).replace("'", "''")) for name, value in known.items() if value)


def _answers(bouncer: "subprocess.Popen[bytes]", database: str, user: str, port: int) -> bool:
    assert bouncer.poll() is None, "PgBouncer has ended"
    try:
        psycopg.connect(host="127.0.0.1", port=port, dbname=database, user=user).close()
    except psycopg.OperationalError:
        return False
    return True
