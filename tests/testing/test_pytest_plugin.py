"""The plugin, in tests of a project that uses this app."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent

pytestmark = pytest.mark.django_db  # the project's server is this one


def test_the_fixture_keeps_its_promises(shop: pytest.Pytester) -> None:
    (shop.path / "shop" / "subscribers.py").write_text((HERE / "subscribers_of_shop.py").read_text())
    tests = (HERE / "tests_of_shop.py").read_text()
    shop.makepyfile(test_shop=tests)
    result = shop.runpytest_subprocess("-q", "--create-db")
    modes_of_one = 1
    result.assert_outcomes(passed=len(re.findall(r"^ *def test_", tests, re.MULTILINE)) + modes_of_one)


def test_the_examples_in_the_documentation_run(shop: pytest.Pytester) -> None:
    page = (CHECKOUT / "docs" / "testing.md").read_text()
    application, *tests = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (shop.path / "shop" / "subscribers.py").write_text("from shop.models import Email, Order\n" + application)
    *functions, unittest = tests
    shop.makepyfile(
        test_functions="from datetime import timedelta\nfrom shop.subscribers import *\n" + "\n".join(functions),
        test_case="from shop.subscribers import *\n" + unittest,
    )
    result = shop.runpytest_subprocess("-q", "--create-db")
    result.assert_outcomes(passed=sum(test.count("def test_") for test in tests))
    message = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    shop.makepyfile(
        test_message=f"""
from shop.subscribers import place_order

def test_message(pubsub):
    place_order(customer_id=7, total="129.90")
    try:
        pubsub.assert_published("orders.events", payload={{"total": "99.00"}})
    except AssertionError as error:
        assert f"AssertionError: {{error}}" == {message.rstrip()!r}
"""
    )
    shop.runpytest_subprocess("-q", "--create-db", "test_message.py").assert_outcomes(passed=1)


def test_without_the_fixture_django_is_not_set_up(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pubsub.pytest_plugin", "-p", "no:django"]
    ran = subprocess.run(command, cwd=pytester.path, env={"PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


PUBLISHES = """
from django.db import transaction
from pubsub import publish, subscribe

def test_it_works(pubsub):
    with transaction.atomic():
        publish("orders.events", {"id": 1})
    subscribe("orders.events", group="readers")(lambda event: None)
    assert len(pubsub.drain(groups=["readers"]).handled) == 1
"""


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        ("--nomigrations", ""),
        ("--create-db", 'MIGRATION_MODULES = {"pubsub": None}'),
        ("--create-db", 'DATABASES["default"]["TEST"]["MIGRATE"] = False'),
    ],
)
def test_a_project_whose_tests_run_no_migrations_gets_the_tables_all_the_same(
    shop: pytest.Pytester, option: str, setting: str
) -> None:
    with (shop.path / "settings.py").open("a") as settings:
        settings.write(setting)
    shop.makepyfile(test_shop=PUBLISHES)
    shop.runpytest_subprocess("-q", "--create-db", option).assert_outcomes(passed=1)


@pytest.mark.parametrize("migrations", ["--migrations", "--nomigrations"])
def test_a_second_database_may_be_of_another_kind(shop: pytest.Pytester, migrations: str) -> None:
    with (shop.path / "settings.py").open("a") as settings:
        settings.write('DATABASES["second"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}')
    tables = """
import pytest
from django.db import connections

@pytest.mark.django_db(databases=["default", "second"])
def test_there_is_nothing_of_it_there():
    tables = connections["second"].introspection.table_names()
    assert "shop_order" in tables and "outbox_topics" not in tables
"""
    shop.makepyfile(test_shop=PUBLISHES, test_second=tables)
    shop.runpytest_subprocess("-q", "--create-db", migrations).assert_outcomes(passed=2)
