"""Java is found where it is; where it is not, the way out is named."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pubsub.spark import java
from pubsub.spark.errors import SparkNotReady


def program(folder: Path, text: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def of_version(folder: Path, version: str) -> Path:
    return program(folder, f"echo 'openjdk version \"{version}\" 2024-01-01' >&2")


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_of_the_wheel", lambda: None)


def test_the_configured_one_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    of_version(tmp_path / "configured", "21.0.1")
    on_path = of_version(tmp_path / "on path", "17.0.9")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert java.find_java() == tmp_path / "on path"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "configured"))
    assert java.find_java() == tmp_path / "configured"


def test_links_to_it_are_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = of_version(tmp_path / "jdk", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java.find_java() == tmp_path / "jdk"


@pytest.mark.parametrize(("said", "version"), [("1.8.0_392", 8), ("11.0.21", 11), ("25-ea", 25), ("17", 17)])
def test_versions_are_understood(tmp_path: Path, said: str, version: int) -> None:
    assert java.version_of(of_version(tmp_path, said)) == version


def test_a_configured_one_that_is_too_old_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(of_version(tmp_path / "good", "17").parent))
    monkeypatch.setenv("JAVA_HOME", str(of_version(tmp_path / "old", "11.0.2").parent.parent))
    with pytest.raises(SparkNotReady, match="which is Java 11"):
        java.find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(SparkNotReady, match="there is no bin/java to run"):
        java.find_java()


def test_without_any_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SparkNotReady, match=r"No java is on PATH.*JAVA_HOME.*apt-get install openjdk.*pip install"):
        java.find_java()
    monkeypatch.setenv("PATH", str(of_version(tmp_path, "1.8.0").parent))
    with pytest.raises(SparkNotReady, match="is Java 8"):
        java.find_java()


def test_the_wheel_s_is_started_without_the_module_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundled = program(tmp_path / "it's bundled", 'for each do echo "<$each>"; done')
    monkeypatch.setattr(java, "_of_the_wheel", lambda: bundled)
    home = java.find_java()
    assert java.find_java() == home
    told = subprocess.run(
        [home / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", ""],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.defpath},
    )
    assert told.stdout.splitlines() == ["<-Xmx1g>", "<a b>", "<>"]


@pytest.mark.skipif(
    not shutil.which("java") and not os.environ.get("JAVA_HOME"), reason="only the wheel's Java is here"
)
def test_the_machine_s_own_is_used_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    version = java.version_of(java.find_java() / "bin" / "java")
    assert version is not None
    assert version >= 17
