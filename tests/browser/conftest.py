"""A real browser in front of a real server. Pictures go to artifacts/."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connections
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.strictness import serious_findings

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"
TIMEOUT_MS = 15_000

FLAGS = (
    "--no-sandbox",  # as root, in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str:
    """Debian's, or whichever is on PATH: Playwright's own download doesn't work everywhere."""
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        if name and (found := shutil.which(name)):
            return found
    missing = "No chromium was found. On Debian `make system-packages` installs it; elsewhere set CHROMIUM=/path/to/it."
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture
def browser(live_server, monkeypatch) -> Iterator[Browser]:
    # Playwright's event loop runs in this very thread, in which the test uses the database, as it may: nothing here is
    # a coroutine. While the loop runs, Django keeps the thread's connections apart, so they are closed before it ends;
    # all of it is over before the database is cleared.
    path = chromium()
    with sync_playwright() as playwright:
        monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        with playwright.chromium.launch(executable_path=path, args=FLAGS) as launched:
            yield launched
        connections.close_all()
        monkeypatch.delenv("DJANGO_ALLOW_ASYNC_UNSAFE")


@pytest.fixture
def page(browser: Browser, live_server) -> Page:
    page = browser.new_page(base_url=live_server.url, viewport={"width": 1280, "height": 900})
    page.set_default_timeout(TIMEOUT_MS)
    return page


def sign_in(page: Page, name: str) -> Page:
    """By hand, as a superuser of this name."""
    User.objects.create_superuser(name, password="secret")
    page.goto("/admin/")
    page.fill("#id_username", name)
    page.fill("#id_password", "secret")
    page.click("input[type=submit]")
    page.wait_for_selector("#user-tools")
    return page


@pytest.fixture
def signed_in(page: Page) -> Page:
    return sign_in(page, "operator")


@pytest.fixture
def second(browser: Browser, live_server) -> Page:
    """A second operator, at another machine."""
    page = browser.new_context(base_url=live_server.url).new_page()
    page.set_default_timeout(TIMEOUT_MS)
    return sign_in(page, "second")


@pytest.fixture
def picture(page: Page) -> Callable[[str], None]:
    """Takes pictures of what the page shows: light, dark, and on a phone."""
    ARTIFACTS.mkdir(exist_ok=True)

    def take(name: str) -> None:
        for look, scheme, width in (("light", "light", 1280), ("dark", "dark", 1280), ("phone", "light", 390)):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 900})
            page.screenshot(path=ARTIFACTS / f"{name}-{look}.png", full_page=True, animations="disabled")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1280, "height": 900})

    return take


@pytest.fixture
def strict(settings):
    settings.MIDDLEWARE = ["tests.browser.strictness.StrictPolicy", *settings.MIDDLEWARE]


@pytest.fixture
def complaints(page):
    """What the browser's console has to complain about: violations of the policy among it."""
    found = []

    def note(message):
        # A browser asks every site for this; whether there is one is the project's affair.
        if message.type == "error" and not message.location.get("url", "").endswith("/favicon.ico"):
            found.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


@pytest.fixture
def operator(strict, complaints, signed_in):
    return signed_in


@pytest.fixture
def look(operator: Page, picture, complaints) -> Iterator[Callable[[str], None]]:
    """Looks at the page that is shown as different people see it. All faults are reported at the end."""
    wrong: list[str] = []

    def take(name: str) -> None:
        picture(name)
        for how, scheme, width in (("light", "light", 1280), ("dark", "dark", 1280), ("phone", "light", 390)):
            operator.emulate_media(color_scheme=scheme)
            operator.set_viewport_size({"width": width, "height": 900})
            operator.wait_for_function("document.getAnimations().length === 0")  # colours on their way are no colours
            wrong.extend(f"{name}, {how}: {finding}" for finding in serious_findings(operator))
            if (needed := operator.evaluate("document.documentElement.scrollWidth")) > width:
                wrong.append(f"{name}, {how}: {needed} pixels wide")
        operator.emulate_media(color_scheme="light")
        operator.set_viewport_size({"width": 1280, "height": 900})
        wrong.extend(f"{name}: {complaint}" for complaint in complaints)
        complaints.clear()

    yield take
    assert not wrong, "\n".join(wrong)
