"""Pages that are seen seldom: empty, of one session, before and after a change, errors; and ten tabs (issue 20)."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from support.console import NARROW, PATIENCE, Home, desk_of, violations
from support.console import home as running
from support.harness import python_server
from support.hostile_texts import HOSTILE, MARK

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

expect: Any = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE)

EMPTY = {
    "": "No server is configured",
    "calls": "No call was made yet",
    "sessions": "",
    "timeline": "",
    "catalog": "",
    "approvals": 'permission = "require_approval"',
    "results": "No result is kept yet",
    "servers": "No server is configured",
    "usage": "No call was recorded in this time",
    "savings": "",
    "settings": "No token is configured",
}
"""By page: what it says while there is nothing. Empty: something is there from the beginning."""


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with running({"servers": {}}) as one:
        yield one


@pytest.fixture
def narrow(browser: "Browser", home: Home) -> "Iterator[Page]":
    """A page of 390 px, signed in; axe can be put into it."""
    context = browser.new_context(**NARROW)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(home.link())
    page.get_by_role("heading", level=1).wait_for()
    yield page
    context.close()


def test_empty_pages_say_what_to_do_and_have_nothing_to_mend(narrow: "Page") -> None:
    """Issue 20: an empty state that says what to do first; axe-core, both themes, 390 px."""
    start, found = narrow.url.rstrip("/"), list[str]()
    for path, words in EMPTY.items():
        narrow.goto(f"{start}/{path}")
        if words:
            narrow.locator(".empty").filter(has_text=words).first.wait_for()
        found += violations(narrow)
    assert found == []


def test_rare_pages_have_nothing_to_mend(narrow: "Page", browser: "Browser", home: Home) -> None:
    """Issue 20: axe-core, both themes, 390 px: drafts, a session, errors, the way in."""
    start, found = narrow.url.rstrip("/"), list[str]()
    narrow.goto(f"{start}/configuration/new")
    narrow.get_by_label("Name", exact=True).fill("gated")
    expect(narrow.get_by_label("Address", exact=True)).to_be_visible()
    expect(narrow.get_by_label("Command", exact=True)).to_be_hidden()
    narrow.get_by_label("A program that the bridge starts").check()
    expect(narrow.get_by_label("Address", exact=True)).to_be_hidden()
    narrow.get_by_role("button", name="Show the change").click()
    narrow.get_by_role("alert").get_by_text("the command is empty").wait_for()
    found += violations(narrow)
    server = python_server("gated")
    narrow.get_by_label("Command", exact=True).fill(" ".join([server["command"], *server["args"]]))
    narrow.get_by_role("button", name="Show the change").click()
    narrow.get_by_role("button", name="Write it").wait_for()
    found += violations(narrow)
    narrow.get_by_role("button", name="Write it").click()
    narrow.get_by_role("button", name="Undo").wait_for()
    found += violations(narrow)
    with desk_of(home) as desk:
        desk.call("gated__echo", text="of a session")
        desk.text()
        narrow.goto(f"{start}/sessions")
        narrow.get_by_role("region", name="Sessions, newest first").get_by_role("link").first.click()
        narrow.get_by_role("heading", name="Session of desk").wait_for()
        found += violations(narrow)
    for path in ("servers/gated", "calls/00000000000000ff", "servers/nonesuch", "catalog/tool?id=gated/echo"):
        narrow.goto(f"{start}/{path}")
        found += violations(narrow)
    home.config.write_text(f"{home.config.read_text()}\n[bridge]\nnonsense = 1\n")
    narrow.get_by_role("alert").filter(has_text="servers.toml is broken").wait_for()
    found += violations(narrow)
    context = browser.new_context(**NARROW)
    context.set_default_timeout(PATIENCE)
    stranger = context.new_page()
    stranger.goto(f"{start}/enter?code=used-before")
    stranger.get_by_role("alert").get_by_text("This link was used already").wait_for()
    found += violations(stranger)
    context.close()
    assert found == []


def test_what_a_client_says_is_inert_where_a_person_decides(browser: "Browser") -> None:
    """Issue 20: hostile strings, as the arguments of a call: in the inbox, and in what became of them."""
    texts = [text.encode("utf-8", "replace").decode() for text in HOSTILE if len(text) < 2000]
    rule = {"tools": "gated/echo", "permission": "require_approval"}
    with running({"servers": {"gated": python_server("gated")}, "permissions": [rule]}) as home, desk_of(home) as desk:
        context = browser.new_context()
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("console", lambda told: problems.append(told.text) if "Content Security" in told.text else None)
        page.goto(home.link())
        page.get_by_role("heading", level=1).wait_for()
        start = page.url.rstrip("/")
        page.goto(f"{start}/approvals")
        for half in (texts[::2], texts[1::2]):
            desk.call("gated__echo", text="\n".join(half))
            page.locator("#inbox:not(.settling)").get_by_role("button", name="Approve once").wait_for()
            assert page.locator("main script, main iframe, main img, main style, main object").count() == 0
            shown = page.get_by_role("main").inner_text()
            assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b-\u200f\x1b]", shown)
            page.get_by_role("button", name="Approve once").click()
            desk.text()
            page.get_by_text("Approved: gated/echo.").wait_for()
        for path in ("approvals", "calls", "timeline", ""):
            page.goto(f"{start}/{path}")
            page.get_by_role("heading", level=1).wait_for()
            assert page.locator("main script, main iframe, main img, main style, main object").count() == 0
        assert page.evaluate(f"window.{MARK} === undefined")
        assert problems == []
        context.close()


def test_ten_tabs_all_hear_and_all_are_answered(browser: "Browser") -> None:
    """Issue 20: a browser allows six connections to a host. Ten pages are live, and an action in each is answered."""
    rule = {"tools": "gated/echo", "permission": "require_approval"}
    with running({"servers": {"gated": python_server("gated")}, "permissions": [rule]}) as home, desk_of(home) as desk:
        context = browser.new_context()
        context.set_default_timeout(PATIENCE)
        first = context.new_page()
        first.goto(home.link())
        first.get_by_role("heading", level=1).wait_for()
        start = first.url.rstrip("/")
        tabs = [first, *(context.new_page() for _ in range(9))]
        for tab in tabs:
            tab.goto(f"{start}/approvals")
            tab.get_by_text("No call waits for you").wait_for()
        for number, tab in enumerate(tabs):
            desk.call("gated__echo", text=f"for tab {number}")
            for other in tabs:
                expect(other.get_by_role("article")).to_contain_text(f"for tab {number}")
            tab.locator("#inbox:not(.settling)").get_by_role("button", name="Approve once").click()
            assert desk.text() == f"for tab {number}"
            tab.get_by_text("Approved: gated/echo.").wait_for()
        for tab in tabs:
            tab.get_by_text("No call waits for you").wait_for()
            expect(tab).to_have_title("Approvals – mcpbridge")
        context.close()
