"""The process that archives is killed, really, between any two steps; and the command runs under spark-submit."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pubsub.models import ConsumerOffset
from pubsub.spark.archive import archive_topic, read_archive
from pubsub.spark.java import find_java
from pubsub.spark.jdbc_driver import find_driver
from tests.sessions import database_url

from .log import make_topic, orders, publish_all

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.timeout(900)]

CHECKOUT = Path(__file__).resolve().parents[2]

PROGRAM = """
import os, signal, sys, django
django.setup()
from pubsub.spark.archive import archive_topic
from pubsub.spark.session import build_session
folder, step, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
session = build_session(master="local[1]", memory="600m", config={"spark.log.level": "ERROR"})
seen = []

def reached(name):
    seen.append(name)
    if seen.count(step) == times:
        # Java and all: as when the machine loses its power.
        os.killpg(0, signal.SIGKILL)

archive_topic(session, folder, "orders", range_size=10, together=3, reached=reached)
"""


def environment() -> dict[str, str]:
    return os.environ | {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings"}


@pytest.mark.parametrize(("step", "times"), [("staged", 2), ("named", 2), ("published", 1), ("moved", 2)])
def test_nothing_is_lost_or_repeated(spark: SparkSession, tmp_path: Path, step: str, times: int) -> None:
    make_topic()
    publish_all("orders", orders(35))
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), step, str(times)],
        cwd=CHECKOUT,
        env=environment(),
        start_new_session=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    publish_all("orders", orders(5))
    archive_topic(spark, str(tmp_path), "orders", range_size=10)
    rows = read_archive(spark, str(tmp_path), "orders").collect()
    assert sorted(row.c_offset for row in rows) == list(range(1, 41))
    assert {place.next_offset for place in ConsumerOffset.objects.filter(group_id="archive")} == {41}


def test_a_job_runs_under_spark_submit(tmp_path: Path) -> None:
    import pyspark

    make_topic()
    publish_all("orders", orders(30))
    home = Path(pyspark.__file__).parent
    done = subprocess.run(
        [
            home / "bin" / "spark-submit",
            "--master",
            "local[1]",
            "--driver-memory",
            "600m",
            "--jars",
            str(find_driver()),
            "manage.py",
            "run_spark_job",
            "throughput",
            "--topic",
            "orders",
            "--format",
            "json",
        ],
        cwd=CHECKOUT,
        env=environment() | {"JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # spark-submit merges both outputs into one.
    (printed,) = (line for line in done.stdout.splitlines() if line.startswith('{"job"'))
    found = json.loads(printed)
    assert sum(row["events"] for row in found["rows"]) == 30
