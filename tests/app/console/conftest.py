"""What the tests of the console share: one browser for all of them, and a signed-in page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.console import ARGUMENTS, CHROMIUM, PATIENCE, Home

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Debian's Chromium, driven by Playwright, whose loop runs in this thread: it ends before another module begins."""
    if not CHROMIUM:
        pytest.skip("chromium is not installed: `make browser` installs Debian's")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: "Browser", home: Home) -> "Iterator[Page]":
    """A page of the console of the module's `home`, signed in by a one-time link. Errors of scripts fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if "Content Security" in message.text else None)
    page.goto(home.link())
    yield page
    context.close()
    assert problems == []
