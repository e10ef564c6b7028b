"""A real browser in front of a real server. Pictures go to artifacts/."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connections
from playwright.sync_api import Browser, Page, sync_playwright

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


@pytest.fixture
def signed_in(page: Page) -> Page:
    """A page on which a superuser has signed in, by hand."""
    User.objects.create_superuser("operator", password="secret")
    page.goto("/admin/")
    page.fill("#id_username", "operator")
    page.fill("#id_password", "secret")
    page.click("input[type=submit]")
    page.wait_for_selector("#user-tools")
    return page


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
