"""Before the shop opens: tables, something to sell, and an account to look at it all."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection

from project.shop import catalogue

LOGIN = "demo"
PATIENCE_S = 120


class PreparationError(Exception):
    """The demo can't begin."""


def prepare_database() -> None:
    """Bring the database up to date. Demos that start at the same moment do so one after the other."""
    with one_at_a_time():
        call_command("migrate", verbosity=0, interactive=False)
        catalogue.fill()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold an advisory lock, on a connection of its own and for a transaction: so it works behind a pooler as well.

    Who waits asks again and again: a statement that waits has a snapshot, and some migrations wait for those.
    """
    beside = connection.copy()
    deadline = time.monotonic() + PATIENCE_S
    try:
        beside.set_autocommit(False)
        with beside.cursor() as cursor:
            while True:
                cursor.execute("SELECT pg_try_advisory_xact_lock(hashtext('pubsub demo shop'))")
                if cursor.fetchone() == (True,):
                    break
                beside.rollback()
                if time.monotonic() > deadline:
                    raise PreparationError(
                        f"Another demo has been preparing this database for {PATIENCE_S} s: see whether it hangs."
                    )
                time.sleep(0.05)
        yield
    finally:
        beside.close()


def ensure_login(kept: Path) -> str:
    """Create a login, and return the password: a random one, made once and kept readable by its owner only.

    Not a fixed one: the database may be one that others can reach.
    """
    if not kept.exists():
        fresh = kept.with_name(f"{kept.name}.{os.getpid()}")
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_hex(5))
        try:
            os.link(fresh, kept)  # whole or not at all, and the first one wins
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    password = kept.read_text().strip()
    with one_at_a_time():
        user, created = get_user_model().objects.get_or_create(
            username=LOGIN, defaults={"is_staff": True, "is_superuser": True}
        )
        # Setting a password that is set already would log all users out.
        if created or not user.check_password(password):
            user.set_password(password)
            user.save(update_fields=["password"])
    return password
