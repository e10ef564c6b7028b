"""The Makefile and what it leans on, as far as nothing has to be fetched."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from project import bootstrap
from project.embedded_postgres import CHECKOUT

# The make that may have started the tests would pass its variables on.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments], cwd=CHECKOUT, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What installing needs, with lock files that name no package: so nothing is fetched."""
    folder = tmp_path / "check out"
    (folder / "project").mkdir(parents=True)
    (folder / "requirements").mkdir()
    shutil.copy(bootstrap.__file__, folder / "project")
    (folder / "requirements" / "demo.txt").write_text("# one\n")
    (folder / "requirements" / "dev.txt").write_text("# one\n# two\n")
    return folder


def install(checkout: Path, name: str, **variables: str) -> str:
    command = [sys.executable, "project/bootstrap.py", name]
    ran = subprocess.run(
        command, cwd=checkout, env=ENVIRONMENT | variables, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_help_is_the_default_and_lists_every_target() -> None:
    shown = make()
    assert shown.returncode == 0
    phony = re.search(r"^\.PHONY: (.*)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    meant_for_people = [target for target in phony[1].split() if target not in ("install-demo", "install-dev")]
    assert re.findall(r"^  ([a-z-]+)  ", shown.stdout, re.MULTILINE) == meant_for_people


def test_the_demo_gets_its_duration_and_address() -> None:
    assert make("-n", "demo", "SECONDS=20", "PORT=9000").stdout.rstrip().endswith("run_demo --seconds 20 --port 9000")
    assert make("-n", "demo").stdout.rstrip().endswith("run_demo")


def test_the_tests_get_their_database() -> None:
    asked = make("-n", "test", "PG=postgres://a:b@c/d?e=f", "ARGS=-k 'this or that'")
    assert asked.stdout.rstrip().endswith("""-m pytest -m "not long" -k 'this or that'""")


def test_without_a_python_it_says_what_to_install() -> None:
    told = make("PYTHON=", "install-demo")
    assert told.returncode != 0
    assert "Python 3.11 or newer is needed" in told.stderr
    assert "apt-get install python3 python3-venv" in told.stderr


def test_a_lock_file_is_installed_once(checkout: Path) -> None:
    first = install(checkout, "demo")
    assert "Creating .venv" in first
    assert "Installing requirements/demo.txt" in first
    assert install(checkout, "demo") == ""

    (checkout / "requirements" / "demo.txt").write_text("# one, changed\n")
    changed = install(checkout, "demo")
    assert "Creating" not in changed
    assert "Installing requirements/demo.txt" in changed


def test_the_demo_needs_nothing_that_the_developers_have(checkout: Path) -> None:
    assert "Installing requirements/dev.txt" in install(checkout, "dev")
    assert install(checkout, "demo") == ""


def test_a_lock_file_that_agrees_with_the_environment_is_added_to_it(checkout: Path) -> None:
    """Else the developers' packages and a Java beside them would drive each other out, at each make."""
    (checkout / "requirements" / "java.txt").write_text("# a java\n")
    assert "Installing requirements/dev.txt" in install(checkout, "dev")
    assert "Installing requirements/java.txt" in install(checkout, "java", PATH=str(checkout))
    assert install(checkout, "dev") == ""
    assert install(checkout, "java", PATH=str(checkout)) == ""


def test_lock_files_agree_unless_a_version_differs() -> None:
    one = "a==1 \\\n    --hash=sha256:x\nb==2 ; python_version < '3.12'\nb==3\n"
    assert bootstrap.agree(one, "c==1\na==1\n")
    assert not bootstrap.agree(one, "a==2\n")
    assert not bootstrap.agree(one, "b==2\n")


def test_no_java_is_installed_beside_one_that_will_do(checkout: Path) -> None:
    (checkout / "requirements" / "java.txt").write_text("# a java\n")
    for version, is_enough in (("11.0.2", False), ("17.0.9", True), ("25-ea", True)):
        java = checkout / version / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
        told = install(checkout, "java", JAVA_HOME=str(checkout / version), PATH=str(checkout))
        assert told == "" if is_enough else "Installing requirements/java.txt" in told
        shutil.rmtree(checkout / ".venv", ignore_errors=True)


def test_two_at_once_install_once(checkout: Path) -> None:
    command = [sys.executable, "project/bootstrap.py", "demo"]
    both = [
        subprocess.Popen(command, cwd=checkout, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    told = "".join(each.communicate(timeout=60)[0] for each in both)
    assert [each.returncode for each in both] == [0, 0]
    assert told.count("Creating .venv") == told.count("Installing") == 1


def test_a_broken_environment_is_made_again(checkout: Path) -> None:
    install(checkout, "demo")
    for python in (checkout / ".venv" / "bin").glob("python*"):
        python.unlink()
    (checkout / ".venv" / "bin" / "python").symlink_to("/usr/bin/a-python-that-was-removed")
    assert "Creating .venv" in install(checkout, "demo")


def test_missing_system_packages_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    bootstrap.install_system_packages()
    shown = capsys.readouterr().out
    assert "chromium isn't installed: the tests in a browser will be skipped" in shown
    assert "apt-get install chromium pgbouncer" in shown


def test_the_pipeline_can_be_run() -> None:
    assert os.access(CHECKOUT / ".ci" / "run", os.X_OK)
    assert subprocess.run(["bash", "-n", CHECKOUT / ".ci" / "run"], check=False).returncode == 0
