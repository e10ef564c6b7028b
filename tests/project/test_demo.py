"""`manage.py run_demo`, as people start it and as they stop it: real processes, and none of them left behind."""

import http.cookiejar
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from project.embedded_postgres import CHECKOUT
from project.postgres_server import Server
from project.shop.demo.processes import PortTaken, listen

PARTS = ("manage.py", "project", "bench", "pubsub", "management", "templates", "spark")
MARK = "DEMO_OF_A_TEST"
PATIENCE_S = 30


class Home:
    """A checkout of its own, with a fresh database: the embedded server's, or one on the server the tests run on."""

    def __init__(self, folder: Path, database_url: str | None) -> None:
        self.folder = folder
        self.mark = secrets.token_hex()
        self.environment = {"PATH": os.environ["PATH"], "DEBUG": "true", "ENV_FILE": "", MARK: self.mark}
        if database_url:
            self.environment["DATABASE_URL"] = database_url

    def start(self, *options: str) -> "Running":
        return Running(self, *options)

    def processes(self) -> dict[int, str]:
        """What was started from here and lives, children's children included: they inherit the mark."""
        found = {}
        for each in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (each / "environ").read_bytes():
                    found[int(each.name)] = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                pass
        return found

    def database_url(self) -> str:
        return self.environment.get("DATABASE_URL") or Server(self.folder).url()

    def server_runs(self) -> bool:
        return "DATABASE_URL" not in self.environment and Server(self.folder).postmaster() is not None


class Running:
    """A demo, whose output is read line by line."""

    def __init__(self, home: Home, *options: str) -> None:
        self.output = ""
        self.process = subprocess.Popen(
            [sys.executable, "-u", "manage.py", "run_demo", *options],
            cwd=home.folder,
            env=home.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.address = self.read_until(r"open: (http://127\.0\.0\.1:\d+)/admin/")[1]
        self.password = self.read_until(r"Log in as demo, password (\S+)")[1]

    def read_until(self, pattern: str) -> re.Match[str]:
        assert self.process.stdout
        for line in self.process.stdout:
            self.output += line
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"expected {pattern!r}, got:\n{self.output}")

    def finish(self) -> int:
        self.output += self.process.communicate(timeout=PATIENCE_S)[0]
        return self.process.returncode


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    # A folder that every account can reach, unlike pytest's own: as root, the server runs as another user.
    base = Path(tempfile.mkdtemp(prefix="demo-", dir="/tmp"))
    base.chmod(0o755)
    for part in PARTS:
        source = CHECKOUT / part
        copy = shutil.copytree if source.is_dir() else shutil.copy
        options: dict[str, Any] = {"symlinks": True} if source.is_dir() else {"follow_symlinks": False}
        copy(source, base / part, **options)
    try:
        if given := os.environ.get("DATABASE_URL"):
            name = f"demo_{os.getpid()}"
            with psycopg.connect(given, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
                try:
                    yield Home(base, urllib.parse.urlsplit(given)._replace(path=f"/{name}").geturl())
                finally:
                    connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        else:
            yield Home(base, None)
            server = Server(base)
            server.stop()
            shutil.rmtree(server.home)
    finally:
        shutil.rmtree(base)


@pytest.fixture(autouse=True)
def _nothing_is_left(home: Home) -> Iterator[None]:
    yield
    left = home.processes()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def log_in(running: Running) -> str:
    """Log in as a browser does, and return the page that follows."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies := http.cookiejar.CookieJar()))
    with browser.open(f"{running.address}/admin/login/?next=/admin/", timeout=PATIENCE_S) as form:
        assert form.status == 200
    token = next(cookie.value for cookie in cookies if cookie.name == "csrftoken")
    fields = {"username": "demo", "password": running.password, "csrfmiddlewaretoken": token, "next": "/admin/"}
    data = urllib.parse.urlencode(fields).encode()
    with browser.open(f"{running.address}/admin/login/", data, timeout=PATIENCE_S) as page:
        return str(page.read().decode())


def test_two_demos_at_once_on_a_fresh_database_close_by_themselves(home: Home) -> None:
    both = [home.start("--seconds", "4") for _ in range(2)]
    assert both[0].address != both[1].address
    assert both[0].password == both[1].password
    for each in both:
        assert "Daily sales" in log_in(each)
        with urllib.request.urlopen(f"{each.address}/static/admin/css/base.css", timeout=PATIENCE_S) as style:
            assert style.status == 200
    for each in both:
        assert each.finish() == 0, each.output
        placed = int(re.search(r"This run: ([\d,]+) orders", each.output)[1])
        assert 20 < placed < 300
        assert f"Checked {placed} orders" in each.output
        assert "exactly once" in each.output
    assert not home.processes()
    assert not home.server_runs()
    assert (home.folder / ".local" / "demo_password").stat().st_mode & 0o777 == 0o600


def test_ctrl_c_closes_the_shop(home: Home) -> None:
    demo = home.start()
    demo.read_until("behind:")
    assert len(home.processes()) == 4
    os.killpg(demo.process.pid, signal.SIGINT)
    assert demo.finish() == 0, demo.output
    assert "exactly once" in demo.output
    assert not home.processes()
    assert not home.server_runs()


def test_a_killed_demo_leaves_no_process_behind(home: Home) -> None:
    demo = home.start()
    demo.read_until("behind:")
    demo.process.kill()
    demo.process.communicate()
    wait_until(lambda: not home.processes())
    assert not home.server_runs()


def test_a_consumer_that_dies_is_reported(home: Home) -> None:
    demo = home.start()
    demo.read_until("behind:")
    consumer = next(pid for pid, command in home.processes().items() if "run_consumer" in command)
    os.kill(consumer, signal.SIGKILL)
    assert demo.finish() == 1
    assert re.search(r"consumer-\d ended by itself, with exit code -9", demo.output)
    assert not home.processes()


def test_a_lost_effect_is_found(home: Home) -> None:
    demo = home.start("--seconds", "2")
    demo.read_until("behind:")
    lost: list[int] = []
    with psycopg.connect(home.database_url(), autocommit=True) as connection:
        newest = connection.execute("SELECT coalesce(max(id), 0) FROM shop_order").fetchone()

        def lose_one() -> bool:
            next_one = "(SELECT min(id) FROM shop_email WHERE order_id > %s)"
            delete = f"DELETE FROM shop_email WHERE id = {next_one} RETURNING order_id"
            lost.extend(order_id for (order_id,) in connection.execute(delete, newest))
            return bool(lost)

        wait_until(lose_one)
    assert demo.finish() == 1, demo.output
    assert "Inconsistent: 1 missing" in demo.output
    assert f"order {lost[0]}: emails has left nothing for order." in demo.output


def test_a_port_in_use_is_named() -> None:
    with listen() as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortTaken, match=f"Port {port} can't be had"):
            listen(port)
        with listen() as other:
            assert other.getsockname()[1] != port
