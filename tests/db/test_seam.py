"""What is private in Django and psycopg is used in one folder, and nowhere by accident."""

import re
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PRIVATE = re.compile(
    r"^\s*(?:from|import) +(?:psycopg\.(?:_|(?:generators|adapt|waiting)\b)|django\.db\.backends\b)", re.MULTILINE
)

ATTRIBUTES = re.compile(
    r"\.(?:in_atomic_block|run_on_commit|wrap_database_errors|needs_rollback|closed_in_transaction|atomic_blocks"
    r"|commit_on_exit|savepoint_ids|execute_wrappers|queries_logged|_from_testcase)\b"
)
"""What Django's connections have and Django does not document."""


def test_only_one_folder_imports_private_modules() -> None:
    """As ruff's rule TID251 has it, which knows no patterns: this one covers every `psycopg._…`."""
    found = [
        str(path.relative_to(CHECKOUT))
        for folder in ("pubsub", "management", "spark", "project")
        for path in (CHECKOUT / folder).rglob("*.py")
        if PRIVATE.search(path.read_text())
    ]
    assert found
    assert not [path for path in found if not path.startswith("pubsub/db/")]


def test_only_one_folder_asks_connections_for_what_is_not_documented() -> None:
    found = [
        f"{path.relative_to(CHECKOUT)}:{number}"
        for folder in ("pubsub", "management", "spark")
        for path in (CHECKOUT / folder).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if ATTRIBUTES.search(line)
    ]
    assert found
    assert not [line for line in found if not line.startswith("pubsub/db/")]


def test_the_rule_is_there() -> None:
    lint = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "TID251" in lint["select"]
    assert {"psycopg.generators", "psycopg.adapt", "django.db.backends"} <= set(
        lint["flake8-tidy-imports"]["banned-api"]
    )
    assert [folder for folder, rules in lint["per-file-ignores"].items() if "TID251" in rules] == [
        "pubsub/db/**",
        "tests/db/**",
    ]


def test_psycopg_has_a_ceiling() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    (psycopg,) = [each for each in project["dependencies"] if each.startswith("psycopg")]
    assert ",<" in psycopg
