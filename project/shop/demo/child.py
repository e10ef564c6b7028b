"""A program that must not outlive the demo: `python -m project.shop.demo.child FD (SCRIPT | -m MODULE) arguments…`.

FD is the reading end of a pipe that the demo holds open. However the demo ends, by SIGKILL too, the kernel closes it;
that is how a child knows, on every system. The last child out also stops the embedded PostgreSQL.
"""

import os
import random
import runpy
import signal
import sys
import threading
import time
from typing import Any

from project.embedded_postgres import CHECKOUT, using_server
from project.postgres_server import Server

PATIENCE_S = 10

_orphaned = threading.Event()


def main() -> None:
    """Run the program under the eyes of a thread that waits for the demo's end."""
    pipe, *command = sys.argv[1:]
    # Until the program has a handler of its own: an exception, so that what is in `finally` happens.
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_watch, args=(int(pipe),), daemon=True).start()
    try:
        if command[0] == "-m":
            sys.argv = command[1:]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            runpy.run_path(command[0], run_name="__main__")
    finally:
        if _orphaned.is_set() and not os.environ.get("DATABASE_URL"):
            _stop_server()


def _leave(number: int, frame: Any) -> None:
    sys.exit(128 + number)


def _watch(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    _orphaned.set()
    print("The demo is gone: stopping.", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_S)
    os._exit(1)


def _stop_server() -> None:
    for _ in range(3):
        with using_server():
            pass  # leaving stops it, unless another process is using it
        time.sleep(random.uniform(0.1, 0.5))  # two children who leave together see each other using it
        if Server(CHECKOUT).postmaster() is None:
            return


if __name__ == "__main__":
    main()
