"""A real cluster: a master, two workers, and executors that are other processes than the driver."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from django.db import connection

from pubsub.models import LogView
from pubsub.spark.java import find_java
from tests.sessions import wait_until

from .log import make_topic, number_all, orders, publish_all

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.timeout(900)]

CHECKOUT = Path(__file__).resolve().parents[2]

PASSWORD = "never-to-be-seen-anywhere"

# As an application of its own: what it prints is what the test looks at. Executors say where they run.
PROGRAM = """
import json, os, sys, django
django.setup()
from pubsub.spark.session import build_session
from pubsub.spark.readers import read_log
folder = sys.argv[1]
session = build_session(memory="768m")

def where(rows):
    import os
    try:
        import pubsub
    except ImportError:
        pubsub = None
    # Executors must do without this package. The process above a worker's is one of the executor's own.
    yield os.getppid(), sum(1 for row in rows), pubsub is not None

frame = read_log(session, "orders", range_size=100)
parts = frame.select("c_offset").rdd.mapPartitions(where).collect()
rows = sorted(frame.select("c_offset").collect())
query = (
    session.readStream.format("pubsub").option("topic", "orders").option("startingOffsets", "earliest")
    .option("rangeSize", 100).option("group", "cluster").load().select("key", "payload")
    .writeStream.format("pubsub").option("topic", "copy").option("checkpointLocation", folder + "/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
frame.explain(True)
print(json.dumps({"offsets": [r.c_offset for r in rows], "parts": parts, "own": os.getpid(),
                  "master": session.sparkContext.master}))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(name: str, log: Path, *arguments: str) -> Iterator[Path]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "JAVA_HOME": str(find_java()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("w") as out:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            env=environment,
            cwd=log.parent,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    port, pages = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        ports = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(pages))
        stack.enter_context(running("master.Master", tmp_path / "master.log", *ports))
        for number in (1, 2):
            folder = str(tmp_path / f"worker-{number}")
            options = (
                "--host",
                "127.0.0.1",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                "--work-dir",
                folder,
            )
            stack.enter_context(running("worker.Worker", tmp_path / f"worker-{number}.log", *options, address))
        wait_for_workers(pages)
        yield address


def wait_for_workers(pages: int) -> None:
    def both_are_there() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{pages}/json/") as answer:
                return b'"aliveworkers" : 2' in answer.read()
        except OSError:
            return False

    wait_until(both_are_there, "two workers at the master", seconds=120)


@pytest.fixture
def with_password() -> Iterator[str]:
    """A role with a password, by which the cluster connects; if the server trusts all, it is not needed."""
    role = f"spark_{os.getpid()}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
    try:
        settings = connection.settings_dict
        host, port = settings["HOST"] or "127.0.0.1", settings["PORT"] or 5432
        yield f"postgres://{role}:{PASSWORD}@{host}:{port}/{settings['NAME']}"
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP ROLE {role}")


def test_executors_read_and_publish_and_no_password_is_seen(cluster: str, with_password: str, tmp_path: Path) -> None:
    make_topic()
    make_topic("copy")
    publish_all("orders", orders(500))
    events = tmp_path / "events"
    events.mkdir()
    configuration = (
        f"spark.master {cluster}\n"
        "spark.driver.host 127.0.0.1\nspark.driver.bindAddress 127.0.0.1\n"
        "spark.executor.memory 512m\nspark.executor.cores 1\n"
        f"spark.eventLog.enabled true\nspark.eventLog.dir file://{events}\n"
    )
    (tmp_path / "spark-defaults.conf").write_text(configuration)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = os.environ | {
        "DATABASE_URL": with_password,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "SPARK_CONF_DIR": str(tmp_path),
        "PYTHONPATH": str(CHECKOUT),
    }
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path)],
        cwd=CHECKOUT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        out, log = process.communicate(timeout=600)
    assert process.returncode == 0, log[-5000:]
    told = json.loads(out.splitlines()[-1])
    assert told["master"] == cluster
    assert told["offsets"] == list(range(1, 501))
    assert sum(rows for _, rows, _ in told["parts"]) == 500
    assert {process for process, _, _ in told["parts"]}.isdisjoint({told["own"]})
    assert len({process for process, _, _ in told["parts"]}) >= 2, "both workers have read"
    assert not any(has_the_package for _, _, has_the_package in told["parts"])
    number_all()
    copied = LogView.objects.filter(topic="copy")
    assert sorted(entry.payload["id"] for entry in copied) == list(range(1, 501))

    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "program.py"]
    assert any(path.is_relative_to(events) and path.stat().st_size for path in written)
    for path in written:
        assert PASSWORD.encode() not in path.read_bytes(), path
    assert PASSWORD not in out
    assert PASSWORD not in log
