"""The console of a fleet in a real browser: a page that is open hears of the calls at other bridges (issue 24)."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleet.test_fleet_call_log import call, name_of
from fleet.test_fleet_figures import ADMIN, MORE
from fleet.test_fleet_sessions import SERVERS
from support.console import ARGUMENTS, CHROMIUM, PATIENCE
from support.redis_server import Server
from support.replicas import Fleet, fleet, needs_fleet

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = needs_fleet
expect: Any = pytest.importorskip("playwright.sync_api").expect


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Fleet]:
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2, servers=SERVERS, more=MORE) as found:
            yield found
    finally:
        redis.kill()


@pytest.fixture
def page(pair: Fleet) -> "Iterator[Page]":
    """A page of the first bridge's console, signed in by a token. Errors of scripts fail the test."""
    if not CHROMIUM:
        pytest.skip("chromium is not installed: `make browser` installs Debian's")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{pair.replicas[0].root}/console/enter")
        page.get_by_text("Sign in with a token").click()
        page.locator("#token").fill(ADMIN)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Overview").wait_for()
        yield page
        browser.close()
        assert problems == []


def test_a_person_sees_calls_of_another_bridge_come_and_filters_by_bridge(pair: Fleet, page: "Page") -> None:
    first, second = pair.replicas
    expect(page.get_by_role("region", name="Bridges of the fleet")).to_contain_text("together")
    page.get_by_role("link", name="Calls", exact=True).first.click()
    rows = page.locator("#calls tbody tr")
    expect(page.locator("#calls")).to_contain_text("No call was made yet")
    call(second, name_of(second, "echo"), "over there")
    expect(rows).to_have_count(1, timeout=PATIENCE)
    expect(rows).to_contain_text("r2")
    call(first, name_of(first, "echo"), "over here")
    expect(rows).to_have_count(2, timeout=PATIENCE)
    page.get_by_label("Bridge", exact=True).fill("r2")
    page.get_by_label("Bridge", exact=True).press("Enter")
    expect(rows).to_have_count(1, timeout=PATIENCE)
    rows.get_by_role("link").last.click()
    expect(page.locator("#arguments-title + pre")).to_contain_text("over there")
    second.kill()
    # The lines of that bridge's log cannot be shown any more, and what says so has such a link, too.
    page.get_by_role("banner").get_by_role("link", name="Overview", exact=True).click()
    expect(page.get_by_role("region", name="Bridges of the fleet")).to_contain_text("has left", timeout=2 * PATIENCE)
