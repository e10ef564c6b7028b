"""The settings as a fresh process reads them from its environment."""

import dataclasses
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from project import settings
from project.embedded_postgres import CHECKOUT
from pubsub.conf import Settings

KEY = "$a-random-key-may-begin-like-a-reference-to-a-variable-0123456789"
NO_DATABASE = "postgres://none:a%23b@127.0.0.1:1/none"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project, so that its .env and .local are the test's own."""
    shutil.copytree(CHECKOUT / "project", tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(checkout: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "DATABASE_URL": NO_DATABASE} | variables
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def read(checkout: Path, *names: str, **variables: str) -> Any:
    """Return the settings of these names, or of the only one."""
    code = f"import json, project.settings as s; print(json.dumps([getattr(s, name) for name in {names!r}]))"
    ran = run(checkout, "-c", code, **variables)
    assert ran.returncode == 0, ran.stderr
    values = json.loads(ran.stdout)
    return values[0] if len(names) == 1 else values


def database(checkout: Path, query: str = "") -> Any:
    return read(checkout, "DATABASES", SECRET_KEY=KEY, DATABASE_URL=NO_DATABASE + query)["default"]


SHOP = {"orders.events": {"partitions": 8}}


def test_the_defaults_are_those_of_production(checkout: Path) -> None:
    names = ("DEBUG", "SECRET_KEY", "ALLOWED_HOSTS", "SECURE_SSL_REDIRECT", "SESSION_COOKIE_SECURE", "USE_TZ", "PUBSUB")
    assert read(checkout, *names, SECRET_KEY=KEY) == [False, KEY, [], True, True, True, {"topics": SHOP}]


def test_without_a_secret_key_the_error_says_what_to_set(checkout: Path) -> None:
    ran = run(checkout, "-c", "import project.settings")
    assert ran.returncode != 0
    assert "SECRET_KEY isn't set, and DEBUG is off. Set SECRET_KEY" in ran.stderr
    assert not (checkout / ".local").exists()


def test_development_makes_a_secret_key_and_keeps_it(checkout: Path) -> None:
    made = read(checkout, "SECRET_KEY", DEBUG="true")
    assert len(made) >= 50
    assert read(checkout, "SECRET_KEY", DEBUG="true") == made
    assert read(checkout, "SECRET_KEY", DEBUG="true", SECRET_KEY=KEY) == KEY
    files = list((checkout / ".local").iterdir())
    assert [file.name for file in files] == ["secret_key"]
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600


def test_commands_run_without_debug_once_a_demo_has_made_a_key(checkout: Path) -> None:
    made = read(checkout, "SECRET_KEY", DEBUG="true")
    assert read(checkout, "DEBUG", "SECRET_KEY", "ALLOWED_HOSTS") == [False, made, []]


def test_dotenv_is_read_and_the_environment_comes_first(checkout: Path) -> None:
    (checkout / ".env").write_text(f"SECRET_KEY={KEY}\nALLOWED_HOSTS=a.example,b.example\nPUBSUB_BATCH_SIZE=7\n")
    assert read(checkout, "SECRET_KEY", "ALLOWED_HOSTS") == [KEY, ["a.example", "b.example"]]
    assert read(checkout, "PUBSUB", PUBSUB_BATCH_SIZE="8") == {"batch_size": 8, "topics": SHOP}
    assert read(checkout, "ALLOWED_HOSTS", SECRET_KEY=KEY, ENV_FILE="") == []


def test_every_pubsub_variable_becomes_a_typed_key(checkout: Path) -> None:
    found = read(
        checkout,
        "PUBSUB",
        SECRET_KEY=KEY,
        PUBSUB_BATCH_SIZE="200",
        PUBSUB_UNKNOWN_TOPIC="create",
        PUBSUB_TOPICS='{"orders": {"partitions": 2}}',
        PUBSUB_WAIT_PERIOD_MS="",
        PUBSUB_BATCHSIZE="left to the system check",
    )
    assert found == {
        "batch_size": 200,
        "unknown_topic": "create",
        "topics": SHOP | {"orders": {"partitions": 2}},
        "batchsize": "left to the system check",
    }


def test_a_value_that_does_not_fit_is_named(checkout: Path) -> None:
    ran = run(checkout, "-c", "import project.settings", SECRET_KEY=KEY, PUBSUB_BATCH_SIZE="many")
    assert "PUBSUB_BATCH_SIZE='many' can't be used: invalid literal for int()" in ran.stderr


def test_connections_are_kept_and_checked(checkout: Path) -> None:
    found = database(checkout)
    assert found["ENGINE"] == "pubsub.db.backend"
    assert (found["HOST"], found["PORT"], found["NAME"]) == ("127.0.0.1", 1, "none")
    assert (found["USER"], found["PASSWORD"]) == ("none", "a#b")
    assert (found["CONN_MAX_AGE"], found["CONN_HEALTH_CHECKS"]) == (60, True)


def test_the_url_of_the_database_may_say_more(checkout: Path) -> None:
    found = database(checkout, "?sslmode=require&connect_timeout=5&CONN_MAX_AGE=0&conn_health_checks=false")
    assert found["OPTIONS"] == {"sslmode": "require", "connect_timeout": 5}
    assert (found["CONN_MAX_AGE"], found["CONN_HEALTH_CHECKS"]) == (0, False)


@pytest.mark.parametrize(
    ("query", "pool"), [("?pool=true", True), ('?pool={"min_size": 2}', {"min_size": 2}), ("?pool=false", False)]
)
def test_a_pool_is_a_switch_or_its_options(checkout: Path, query: str, pool: object) -> None:
    found = database(checkout, query)
    assert found["OPTIONS"] == {"pool": pool}
    assert found["CONN_MAX_AGE"] == (0 if pool else 60), "Django refuses persistent connections beside a pool"


def test_plain_http_needs_one_switch(checkout: Path) -> None:
    names = ("SECURE_SSL_REDIRECT", "SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_HSTS_SECONDS")
    assert read(checkout, *names, SECRET_KEY=KEY, HTTPS="false") == [False, False, False, 0]
    assert read(checkout, *names, SECRET_KEY=KEY, SECURE_SSL_REDIRECT="false") == [False, True, True, 3600]
    assert read(checkout, *names, DEBUG="true") == [False, False, False, 0]


def test_deployed_as_it_is_the_project_passes_djangos_checks() -> None:
    arguments = ("manage.py", "check", "--deploy", "--fail-level", "WARNING")
    ran = run(CHECKOUT, *arguments, SECRET_KEY=KEY, ALLOWED_HOSTS="shop.example.com", ENV_FILE="")
    assert ran.returncode == 0, ran.stderr


def test_the_example_explains_every_variable() -> None:
    source = Path(settings.__file__).read_text()
    known = set(re.findall(r"""(?:env\.\w+|environ\.get)\("([A-Z_]+)\"""", source))
    assert set(settings.PUBSUB_TYPES) == {field.name for field in dataclasses.fields(Settings)}
    known |= {f"PUBSUB_{name.upper()}" for name in settings.PUBSUB_TYPES}
    example = (CHECKOUT / ".env.example").read_text()
    explained = set(re.findall(r"^#([A-Z_]+)=", example, re.MULTILINE))
    assert known - {"ENV_FILE"} == explained
    assert "ENV_FILE" in example
