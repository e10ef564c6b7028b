"""PostgreSQL's driver is found, or fetched and verified, before a session starts."""

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from pubsub.spark import jdbc_driver
from pubsub.spark.errors import SparkNotReady


def jar(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("org/postgresql/Driver.class", "")
    return path


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any driver."""
    monkeypatch.delenv("PGJDBC_JAR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(jdbc_driver, "DEBIAN", tmp_path / "usr" / "postgresql.jar")
    return tmp_path


def test_the_order_in_which_it_is_looked_for(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    ivy = jar(home / ".ivy2" / "jars" / "org.postgresql_postgresql-42.7.1.jar")
    assert jdbc_driver.find_driver() == ivy
    maven = home / ".m2" / "repository" / "org" / "postgresql" / "postgresql"
    jar(maven / "42.7.9" / "postgresql-42.7.9.jar")
    newest = jar(maven / "42.7.13" / "postgresql-42.7.13.jar")
    jar(maven / "42.7.13" / "postgresql-42.7.13-sources.jar")
    assert jdbc_driver.find_driver() == newest
    debian = jar(jdbc_driver.DEBIAN)
    assert jdbc_driver.find_driver() == debian
    cached = jar(home / "cache" / "django-outbox-pubsub" / "jdbc" / "postgresql-42.7.4.jar")
    assert jdbc_driver.find_driver() == cached
    configured = jar(home / "mine.jar")
    monkeypatch.setenv("PGJDBC_JAR", str(configured))
    assert jdbc_driver.find_driver() == configured


def test_a_configured_one_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    (home / "broken.jar").write_text("half of it")
    monkeypatch.setenv("PGJDBC_JAR", str(home / "broken.jar"))
    with pytest.raises(SparkNotReady, match=r"PGJDBC_JAR is .*broken\.jar"):
        jdbc_driver.find_driver()


def test_it_is_fetched_by_pip_and_verified(home: Path) -> None:
    found = jdbc_driver.find_driver()
    assert found == home / "cache" / "django-outbox-pubsub" / "jdbc" / "postgresql-42.7.4.jar"
    assert hashlib.sha256(found.read_bytes()).hexdigest() == jdbc_driver.SHA256
    assert list(found.parent.iterdir()) == [found]


def test_another_checksum_is_refused(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(jdbc_driver, "SHA256", "0" * 64)
    with pytest.raises(SparkNotReady, match=r"has the checksum 188976.*It was not kept"):
        jdbc_driver.find_driver()
    assert not list((home / "cache").rglob("*.jar"))


def test_if_it_cannot_be_downloaded_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SparkNotReady, match=r"PGJDBC_JAR.*libpostgresql-jdbc-java.*Fetching it by pip failed"):
        jdbc_driver.find_driver()
