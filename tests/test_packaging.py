"""What others install: one package, whole, that works in a project which has never heard of this repository."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import psycopg
import pytest
from django.db import connection

CHECKOUT = Path(__file__).resolve().parent.parent

PROJECT = {
    "manage.py": """
import os, sys
from django.core.management import execute_from_command_line
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
execute_from_command_line(sys.argv)
""",
    "settings.py": """
import os
SECRET_KEY = "scratch"
INSTALLED_APPS = ["pubsub", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", **eval(os.environ["DATABASE"])}}
PUBSUB = {"topics": {"orders.events": {"partitions": 2}}}
USE_TZ = True
""",
    "shop/__init__.py": "",
    "shop/subscribers.py": """
from pubsub import subscribe

@subscribe("orders.events", group="printer", start="earliest")
def show(event):
    print("handled", event.offset, event.payload, flush=True)
""",
    "publish.py": """
import django
django.setup()
from django.db import transaction
from pubsub import publish
with transaction.atomic():
    publish("orders.events", {"id": 1}, type="order.created")
""",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(CHECKOUT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_one_package_with_everything_in_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"pubsub"}
    for needed in (
        "pubsub/py.typed",
        "pubsub/consuming/sql/read_partition.sql",
        "pubsub/migrations/sql/sequence_v1.sql",
        "pubsub/management/commands/run_consumer.py",
    ):
        assert needed in names
    assert not [name for name in names if "bench" in name]
    templates = [path.relative_to(CHECKOUT) for path in (CHECKOUT / "templates").rglob("*.html")]
    assert templates
    assert {f"pubsub/{path.as_posix()}" for path in templates} <= set(names)
    metadata = zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("METADATA"))).decode()
    for extra in ("spark", "metrics", "otel", "dev"):
        assert f"Provides-Extra: {extra}" in metadata
    assert sorted(
        line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra" not in line
    ) == [
        "Requires-Dist: django>=5.2",
        "Requires-Dist: psycopg<3.4,>=3.3.6",
    ]


def test_on_an_index_the_readme_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        metadata = files.read(next(name for name in files.namelist() if name.endswith("METADATA"))).decode()
    _, _, page = metadata.partition("\n\n")
    assert re.findall(r"\]\((?!https?://)[^)]*\)", page) == []
    assert "how it works, the tables and the glossary" in page
    (source,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(source) as files:
        assert any(name.endswith("/docs/ordering.md") for name in files.getnames())


@pytest.mark.django_db(transaction=True)
def test_a_foreign_project_installs_migrates_publishes_and_consumes(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    # The versions that this suite runs with, and nothing else of its environment.
    pins = tmp_path / "pins.txt"
    locked = (CHECKOUT / "requirements" / "demo.txt").read_text().replace("\\\n", " ")
    pins.write_text("\n".join(line.split("--hash")[0].strip() for line in locked.splitlines()))
    install = [python, "-m", "pip", "install", "-q", "-c", str(pins), f"{wheel}", "psycopg[binary]"]
    subprocess.run(install, check=True, capture_output=True, text=True)

    for name, text in PROJECT.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    keys = ("HOST", "PORT", "USER", "PASSWORD")
    settings = {key: connection.settings_dict[key] for key in keys}
    name = f"{connection.settings_dict['NAME']}_foreign"
    environment = {
        "PATH": os.defpath,
        "DATABASE": repr(settings | {"NAME": name}),
        "DJANGO_SETTINGS_MODULE": "settings",
        "PYTHONPATH": str(site),
    }

    def run(*arguments: str) -> str:
        done = subprocess.run([python, *arguments], cwd=site, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    parameters = connection.get_connection_params()
    address = {key: parameters[key] for key in ("dbname", "host", "port", "user", "password") if key in parameters}
    with psycopg.connect(**address, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
        try:
            run("manage.py", "check", "--fail-level", "WARNING")
            run("manage.py", "migrate", "--verbosity", "0")
            run("publish.py")
            assert run("manage.py", "run_consumer", "--drain") == "handled 1 {'id': 1}\n"
            assert run("manage.py", "run_consumer", "--drain") == ""
        finally:
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
