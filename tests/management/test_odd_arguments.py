"""What is typed by a slip, or by a script that has gone wrong: answered in a sentence, never by a traceback."""

import io
import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import override_settings

from pubsub import publish
from pubsub.management.arguments import moment, start
from pubsub.models import Topic
from tests.control.helpers import GROUP, TOPIC, make_topic, subscribe
from tests.factories import DeadLetterFactory
from tests.processes import CHECKOUT
from tests.sessions import database_url

pytestmark = pytest.mark.django_db(transaction=True)

HUGE = "9" * 24
ENDLESS = "9" * 5000
NOT_UTF8 = "\udcff"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["pubsub_dead_letters", "list", "--since=99999999d"], "not within the years 1 to 9999"),
        (["pubsub_dead_letters", "list", f"--since={ENDLESS}d"], "is too long"),
        (["pubsub_dead_letters", "list", "--until=0001-01-01T00:00+14:00"], "not within the years"),
        (["pubsub_dead_letters", "replay", HUGE], "whole number of at least 1, got"),
        (["pubsub_dead_letters", "replay", str(2**63)], f"at most {2**63 - 1}"),
        (["pubsub_dead_letters", "show", ENDLESS], "got '9999999999999999999999999999999999999…'"),
        (["pubsub_dead_letters", "list", "--before", HUGE], "whole number"),
        (["pubsub_dead_letters", "list", "--limit", HUGE], "whole number"),
        (["pubsub_dead_letters", "list", f"--group={NOT_UTF8}"], "--group: expected text in UTF-8"),
        (["pubsub_dead_letters", "discard", "--all", f"--reason={NOT_UTF8}"], "--reason: expected text"),
        (["pubsub_group", "pause", NOT_UTF8], "--group: expected text"),
        (["pubsub_group", "seek", GROUP, "--to", HUGE], "whole number"),
        (["pubsub_group", "seek", GROUP, "--to", str(2**63 - 1)], "beyond the tip"),
        (["pubsub_group", "seek", GROUP, "--to=99999999d"], "not within the years"),
        (["pubsub_group", "seek", GROUP, "--by=0", "--partition", HUGE], "whole number"),
        (["pubsub_group", "seek", GROUP, "--by=0", "--partition=2147483647"], "has no partition 2147483647"),
        (["pubsub_topic", "resize", TOPIC, "2147483647"], "4,096 at most"),
        (["pubsub_topic", "configure", TOPIC, "--partitions=5000"], "4,096 at most"),
        (["pubsub_topic", "configure", TOPIC, f"--max-bytes={ENDLESS}"], "number of bytes"),
        (["pubsub_topic", "configure", TOPIC, f"--max-bytes={HUGE}"], "number of bytes"),
        (["pubsub_topic", "configure", TOPIC, "--max-bytes=99999999999TB"], "max_bytes of topic"),
        (["pubsub_tail", TOPIC, "--no-follow", "--from", HUGE], "whole number"),
        (["pubsub_tail", TOPIC, "--no-follow", f"--type={NOT_UTF8}"], "--type: expected text"),
        (["run_consumer", "--partition", HUGE], "whole number"),
        (["run_consumer", "--metrics-port=99999"], "at most 65535"),
        (["run_consumer", "--batch-size", HUGE, "--drain"], "whole number"),
        (["run_consumer", "--group", NOT_UTF8], "--group: expected text"),
        (["pubsub_admin_groups", "--database=users"], 'There is no database "users"'),
    ],
)
def test_it_is_answered_in_a_sentence(arguments: list[str], expected: str) -> None:
    make_topic()
    subscribe()
    DeadLetterFactory()
    with pytest.raises(CommandError) as ended:
        call_command(*arguments, stdout=io.StringIO(), stderr=io.StringIO())
    assert expected in str(ended.value)
    assert Topic.objects.get(name=TOPIC).total_partitions < 100


@pytest.mark.parametrize(
    "arguments",
    [
        ["pubsub_group", "seek", GROUP, "--by=-999999999999999999"],
        ["pubsub_group", "seek", GROUP, "--to=52w"],
        ["pubsub_group", "seek", GROUP, "--to=latest", "--force", "--wait=2147483647"],
        ["pubsub_group", "force-complete", GROUP, "--older-than=999999999d"],
        ["pubsub_topic", "configure", TOPIC, "--retention=999999999d"],
        ["pubsub_dead_letters", "list", "--limit=2147483647", "--before=9223372036854775807"],
        ["pubsub_tail", TOPIC, "--no-follow", "--from=1d", "--last=9223372036854775807"],
        ["run_cleanup", "--once", "--lock-timeout-ms=2147483647"],
    ],
)
def test_what_is_large_and_makes_sense_works(arguments: list[str]) -> None:
    make_topic()
    subscribe()
    call_command(*arguments, stdout=io.StringIO(), stderr=io.StringIO())


def test_a_worker_with_the_largest_batches_ends() -> None:
    with transaction.atomic():
        publish("default", 1)
    worker = subprocess.run(
        [sys.executable, "manage.py", "run_consumer", "--drain", "--batch-size=1000000", "--wait-period-ms=1"],
        cwd=CHECKOUT,
        env={"DATABASE_URL": database_url(), "PATH": "", "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert worker.returncode == 0, worker.stderr


@override_settings(USE_TZ=True, TIME_ZONE="Europe/Berlin")
def test_all_commands_read_times_alike() -> None:
    """A time has its zone, or the site's; a duration is how long ago."""
    assert moment("2030-01-31T12:00").isoformat() == "2030-01-31T11:00:00+00:00"
    assert start("2030-01-31T12:00") == moment("2030-01-31T12:00")
    assert moment("1d12h") < moment("35h")
    assert moment("2w") < moment("13d") < moment("90m") < moment("30s")
