"""What a session is made of: arguments before settings before Spark's own configuration before our defaults."""

from pathlib import Path

import pytest
from django.test import override_settings
from pyspark.sql import SparkSession

from pubsub.spark import session as sessions
from pubsub.spark.jdbc_driver import find_driver
from pubsub.spark.session import build_session


def configured(**chosen: str) -> dict[str, str]:
    return dict(sessions._complete("test", chosen).getAll())


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_the_defaults() -> None:
    found = configured()
    assert found["spark.master"] == "local[*]"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.driver.host"] == "127.0.0.1"
    assert found["spark.ui.enabled"] == "false"
    assert found["spark.jars"] == str(find_driver())


def test_a_cluster_learns_nothing_about_this_machine() -> None:
    found = configured(**{"spark.master": "spark://elsewhere:7077"})
    assert "spark.driver.host" not in found
    assert "spark.sql.shuffle.partitions" not in found


def test_the_order_of_precedence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\n\nspark.master   spark://file:7077\nspark.sql.session.timeZone=Europe/Berlin\nspark.x a b\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    found = configured()
    assert found["spark.master"] == "spark://file:7077"
    assert found["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert found["spark.x"] == "a b"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    assert configured()["spark.master"] == "yarn"
    assert configured(**{"spark.master": "local[3]"})["spark.master"] == "local[3]"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.jars.packages", "org.postgresql:postgresql:42.7.13"),
        ("spark.jars", "s3://jars/postgresql-42.7.3.jar,other.jar"),
        ("spark.driver.extraClassPath", "/usr/share/java/postgresql.jar"),
    ],
)
def test_a_driver_that_is_configured_is_not_looked_for(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    def look() -> Path:
        raise AssertionError("looked for")

    monkeypatch.setattr("pubsub.spark.jdbc_driver.find_driver", look)
    assert configured(**{name: value})[name] == value


def test_an_open_session_is_used(spark: SparkSession) -> None:
    with override_settings(PUBSUB={"spark_master": "spark://nowhere:1"}):
        assert build_session() is spark
    assert spark.sparkContext.master == "local[2]"
