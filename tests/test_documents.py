"""The documents tell the truth: every example runs, every command exists, every file that is named is there."""

import doctest
import importlib
import inspect
import pkgutil
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class
from django.db import connection
from django.test import override_settings

import pubsub
import pubsub.subscriptions.declare
from pubsub.conf import KNOWN, Settings
from tests.testapp.documented import DocumentedEmail, DocumentedOrder

CHECKOUT = Path(__file__).resolve().parent.parent
PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
MODULES = [
    module.name for module in pkgutil.walk_packages(pubsub.__path__, "pubsub.") if ".migrations" not in module.name
]

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page: Path, *languages: str) -> Iterator[str]:
    for indent, language, text in FENCE.findall(page.read_text()):
        if language in languages:
            yield re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)


@pytest.fixture
def use_the_open_session(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """An example that builds a session gets the one of all tests: its own would stay open, and be theirs."""

    def use(text: str) -> None:
        if "build_session" in text:
            request.getfixturevalue("spark")

    return use


@each_page
@pytest.mark.django_db(transaction=True)
def test_every_python_example_runs(
    page: Path, monkeypatch: pytest.MonkeyPatch, use_the_open_session: Callable[[str], None]
) -> None:
    use_the_open_session(page.read_text())
    registry = pubsub.subscriptions.declare.Registry()
    monkeypatch.setattr("pubsub.subscriptions.declare.registry", registry)
    names: dict[str, Any] = {"Order": DocumentedOrder, "Email": DocumentedEmail, "__name__": "example"}
    for number, text in enumerate(blocks(page, "python"), start=1):
        exec(compile(text, f"{page.name}, example {number}", "exec"), names)
        if "PUBSUB" in names:
            with override_settings(PUBSUB=names.pop("PUBSUB")):
                pubsub.conf.conf()


@each_page
@pytest.mark.django_db(transaction=True)
def test_every_sql_example_runs(page: Path) -> None:
    for text in blocks(page, "sql"):
        with connection.cursor() as cursor:
            cursor.execute(text)
            assert cursor.rowcount == 1


@each_page
def test_every_command_exists_with_its_options(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):.*##", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    commands = get_commands()
    for line in re.findall(r"^\$ (.*)", "\n".join(blocks(page, "console")), re.MULTILINE):
        program, *arguments = shlex.split(re.split(r" [<>] ", line.split(" | ")[-1])[0])
        if program == "make":
            assert arguments[0] in targets, line
        else:
            assert [program, arguments.pop(0)] == ["python", "manage.py"], line
            name = arguments.pop(0)
            load_command_class(commands[name], name).create_parser("manage.py", name).parse_args(arguments)


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_setting_is_in_the_list_with_its_default() -> None:
    page = (CHECKOUT / "docs" / "settings.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| `(.+?)` \|", page, re.MULTILINE))
    assert listed.keys() == KNOWN
    for name, default in listed.items():
        assert getattr(Settings(), name) == eval(default), name


def test_every_option_of_a_subscription_is_in_the_list_with_its_default() -> None:
    page = (CHECKOUT / "docs" / "consuming.md").read_text()
    _, _, section = page.partition("## Options")
    listed = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", section.partition("## ")[0], re.MULTILINE))
    options = [option for option in inspect.signature(pubsub.subscribe).parameters.values() if option.name != "topic"]
    assert list(listed) == [option.name for option in options]
    for option in options:
        required = option.default is inspect.Parameter.empty
        assert listed[option.name] == "–" if required else eval(listed[option.name].strip("`")) == option.default


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.django_db(transaction=True)
def test_the_examples_in_docstrings_run(
    name: str, monkeypatch: pytest.MonkeyPatch, use_the_open_session: Callable[[str], None]
) -> None:
    module = importlib.import_module(name)
    use_the_open_session(Path(module.__file__).read_text() if module.__file__ else "")
    monkeypatch.setattr("pubsub.subscriptions.declare.registry", pubsub.subscriptions.declare.Registry())
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    failed, _ = doctest.testmod(module, optionflags=flags)
    assert failed == 0
