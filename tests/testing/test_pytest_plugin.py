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
    result.assert_outcomes(passed=tests.count("\ndef test_"))


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
