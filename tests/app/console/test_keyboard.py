"""Every page worked by keys alone, and the focus where a person left it when a page changes (issue 20: by keyboard)."""

import json
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from support.console import PATIENCE, Desk, Home, desk_of
from support.console import home as running
from support.harness import python_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

expect: Any = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE)

SHOP = {"command": sys.executable, "args": ["-m", "mcpbridge.app.demo.servers.shop_main"]}
CONFIG: dict[str, Any] = {
    "servers": {"gated": python_server("gated"), "shop": SHOP},
    "permissions": [{"tools": "gated/pass_gate", "permission": "require_approval"}],
}
STOPS = 150
"""So often is Tab pressed at most, on the way to something."""

_FOCUSED = """one => {
  const style = getComputedStyle(one);
  const box = one.getBoundingClientRect();
  const shadow = style.boxShadow.replaceAll(/rgba\\(0, 0, 0, 0\\)( 0px){4}(, )?/g, "");
  const isSeen = style.outlineStyle !== "none" || !["", "none"].includes(shadow);
  return one === document.activeElement && [isSeen, box.width > 0];
}"""


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with running(CONFIG) as one:
        yield one


@pytest.fixture(scope="module")
def desk(home: Home) -> Iterator[Desk]:
    with desk_of(home) as one:
        yield one


@pytest.fixture(scope="module")
def page(browser: "Browser", home: Home) -> "Iterator[Page]":
    """One page for all: what each test does begins at an address."""
    # Without movements: what is looked at is what stays, not a shadow on its way out.
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(home.link())
    page.get_by_role("heading", level=1).wait_for()
    yield page
    context.close()


@pytest.fixture(scope="module")
def start(page: "Page") -> str:
    """The address of the console."""
    return page.url.rstrip("/")


def open_at(page: "Page", address: str) -> None:
    """Go to an address, and past the navigation."""
    page.goto(address)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main'")


def tab_to(page: "Page", target: "Locator") -> None:
    """Press Tab until this has the focus, which is then seen."""
    target.wait_for()
    for _ in range(STOPS):
        page.keyboard.press("Tab")
        focused = target.evaluate(_FOCUSED)
        if focused:
            assert focused == [True, True], "the focus is seen"
            return
    raise AssertionError(f"no Tab leads to {target}")


def press(page: "Page", target: "Locator", key: str = "Enter") -> None:
    """Go there by Tab, and press a key."""
    tab_to(page, target)
    page.keyboard.press(key)


def test_the_first_tab_leads_past_the_navigation(page: "Page", start: str) -> None:
    page.goto(f"{start}/servers")
    press(page, page.get_by_role("link", name="Skip to the content"))
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Add a server")).to_be_focused()


def test_the_overview(page: "Page", start: str) -> None:
    open_at(page, f"{start}/")
    press(page, page.get_by_role("button", name="Examine"))
    page.get_by_role("button", name="Examine again").wait_for(timeout=4 * PATIENCE)
    assert page.evaluate("document.activeElement !== document.body"), "the focus is not lost with the button"
    press(page, page.get_by_role("link", name="gated", exact=True), "Enter")
    page.get_by_role("heading", name="gated", exact=True).wait_for()


def test_calls(page: "Page", start: str, desk: Desk) -> None:
    """Filter the list, open a call, and make it again with other arguments."""
    desk.call("gated__echo", text="by keys")
    desk.text()
    open_at(page, f"{start}/calls")
    tab_to(page, page.get_by_label("Server", exact=True))
    page.keyboard.type("gated")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("server=gated"))
    expect(page.locator("#heard")).to_have_text(re.compile(r"^\d+ calls?$"))
    tab_to(page, page.get_by_label("Outcome"))
    page.keyboard.press("ArrowDown")
    expect(page).to_have_url(re.compile("outcome="))
    expect(page.get_by_label("Outcome")).to_be_focused()
    page.keyboard.press("Home")
    expect(page).not_to_have_url(re.compile("outcome="))
    press(page, page.locator("#calls").get_by_role("link", name="gated/echo").first)
    page.get_by_role("heading", name="Make it again").wait_for()
    press(page, page.get_by_text("Edit and call", exact=True))
    tab_to(page, page.get_by_label("Arguments, a JSON object"))
    page.keyboard.press("Control+a")
    page.keyboard.insert_text('{"text": "edited by keys"}')
    press(page, page.get_by_role("button", name="Call", exact=True), " ")
    expect(page.locator("#made")).to_contain_text("edited by keys")


def test_sessions_and_the_timeline(page: "Page", start: str, desk: Desk) -> None:
    open_at(page, f"{start}/sessions")
    tab_to(page, page.get_by_label("Client"))
    page.keyboard.type("desk")
    page.keyboard.press("Enter")
    press(page, page.get_by_role("region", name="Sessions, newest first").get_by_role("link").first)
    page.get_by_role("heading", name="Session of desk").wait_for()
    open_at(page, f"{start}/timeline")
    tab_to(page, page.get_by_label(re.compile("^What")))
    page.keyboard.type("servers")
    press(page, page.get_by_role("button", name="Filter"))
    expect(page).to_have_url(re.compile("kind=servers"))
    page.get_by_text("server ready").first.wait_for()


def test_the_catalog(page: "Page", start: str) -> None:
    """Search, read why, open a tool, fill in its form, call it, look at the result."""
    open_at(page, f"{start}/catalog")
    tab_to(page, page.get_by_label("What is to be done?"))
    page.keyboard.type("say it again")
    found = page.locator("ol.ranking")
    found.wait_for()
    expect(page.locator("#heard")).to_have_text(re.compile(r"^\d+ tools? found$"))
    why = found.get_by_text("Why", exact=True).first
    press(page, why)
    expect(found.get_by_role("table").first).to_be_visible()
    open_at(page, f"{start}/catalog/tool?id=gated/echo")
    tab_to(page, page.get_by_role("textbox", name=re.compile("text")))
    page.keyboard.type("typed")
    press(page, page.get_by_role("button", name="Call it"))
    job = page.locator("#job[data-state=done]")
    expect(job).to_contain_text("typed")
    tab_to(page, job.get_by_role("group").first)
    tab_to(page, page.get_by_label("Slimmed to"))
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Slimmed to")).to_be_focused()


def test_approvals(page: "Page", start: str, desk: Desk) -> None:
    """Without the shortcuts too: by Tab and Enter. The focus is then in the inbox."""
    open_at(page, f"{start}/approvals")
    desk.call("gated__pass_gate", gate="none")
    page.locator("#inbox:not(.settling) article").wait_for()
    press(page, page.get_by_role("button", name="Deny", exact=True))
    assert desk.answer()["isError"]
    page.get_by_text("No call waits for you").wait_for()
    expect(page.locator("#inbox")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.getElementById('inbox').contains(document.activeElement)")


def test_results(page: "Page", start: str, desk: Desk) -> None:
    """Search, open, sort by a column, ask, and delete."""
    for tool, arguments in (("shop__list_orders", {}), ("gated__echo", {"text": "orders " * 2000})):
        desk.call(tool, **arguments)
        desk.answer()
    open_at(page, f"{start}/results")
    tab_to(page, page.get_by_label(re.compile("^Search in")))
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("search=orders"))
    rows = page.locator("#kept tbody tr")
    expect(rows).to_have_count(2)
    press(page, page.get_by_role("button", name=re.compile("^Delete")).first)
    expect(rows).to_have_count(1)
    expect(page.get_by_role("button", name=re.compile("^Delete"))).to_be_focused()
    open_at(page, f"{start}/results")
    press(page, rows.get_by_role("link").first)
    head = page.get_by_role("region", name="Rows").get_by_role("columnheader").first
    press(page, head.get_by_role("link"))
    expect(head).to_have_attribute("aria-sort", "ascending")
    press(page, head.get_by_role("link"))
    expect(head).to_have_attribute("aria-sort", "descending")
    tab_to(page, page.get_by_label("limit"))
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Rows").locator("tbody tr")).to_have_count(3)


def test_servers(page: "Page", start: str, home: Home) -> None:
    """Add one by a form with radio buttons, look at the change, write it, undo it; stop and start one."""
    open_at(page, f"{start}/servers")
    press(page, page.get_by_role("button", name="Add a server"), " ")
    page.get_by_role("heading", name="Add a server").wait_for()
    tab_to(page, page.get_by_label("Name", exact=True))
    page.keyboard.type("added")
    tab_to(page, page.get_by_label("A server at an address"))
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("A program that the bridge starts")).to_be_checked()
    tab_to(page, page.get_by_label("Command", exact=True))
    page.keyboard.type("no-such-program")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Added is added").wait_for()
    tab_to(page, page.get_by_role("group", name="The change as a diff"))
    press(page, page.get_by_role("button", name="Write it"))
    page.get_by_text("The bridge has taken it in").wait_for()
    press(page, page.get_by_role("button", name="Undo"))
    page.get_by_role("heading", name="Servers", exact=True).wait_for()
    assert "no-such-program" not in home.config.read_text()
    open_at(page, f"{start}/servers/gated")
    state = page.locator("#state")
    press(page, state.get_by_role("button", name="Stop"))
    expect(state).to_contain_text("idle")
    press(page, state.get_by_role("button", name="Start"))
    expect(state).to_contain_text("ready")
    open_at(page, f"{start}/configuration/file")
    tab_to(page, page.locator("textarea"))
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Show the change")).to_be_focused()


def test_the_focus_stays_when_a_part_changes(page: "Page", start: str, desk: Desk) -> None:
    """What htmx puts in place of the part with the focus has it at the same thing; what is unfolded stays so."""
    open_at(page, f"{start}/servers/gated")
    state = page.locator("#state")
    number = state.locator("dd a")
    before = int(number.inner_text())
    restart = state.get_by_role("button", name="Restart")
    restart.focus()
    restart.evaluate("one => { one.dataset.old = '' }")
    desk.call("gated__echo", text="a")
    desk.text()
    expect(number).to_have_text(str(before + 1))
    expect(state.locator("[data-old]")).to_have_count(0)
    expect(restart).to_be_focused()
    open_at(page, f"{start}/calls")
    rows = page.locator("#calls tbody tr")
    newest = rows.first.locator("td.name a").last
    newest.wait_for()
    address = newest.get_attribute("href") or ""
    page.locator(f'#calls td.name a[href="{address}"]').focus()
    desk.call("gated__echo", text="b")
    desk.text()
    expect(newest).not_to_have_attribute("href", address)  # a row more, perhaps two: the former call's may come late
    expect(page.locator(f'#calls td.name a[href="{address}"]')).to_be_focused()
    open_at(page, f"{start}/")
    gated = page.get_by_role("article").get_by_role("link", name="gated", exact=True)
    gated.focus()
    gated.evaluate("one => { one.dataset.old = '' }")
    desk.call("gated__echo", text=json.dumps("c"))
    desk.text()
    expect(page.locator("#cards [data-old]")).to_have_count(0)
    expect(gated).to_be_focused()


def test_savings_and_settings(page: "Page", start: str) -> None:
    open_at(page, f"{start}/savings")
    tab_to(page, page.locator("#days"))
    page.keyboard.press("ArrowDown")
    press(page, page.get_by_role("button", name="Show"))
    expect(page).to_have_url(re.compile("days="))
    open_at(page, f"{start}/settings")
    press(page, page.get_by_role("link", name="Show all values"))
    expect(page).to_have_url(re.compile("only=all"))
    tab_to(page, page.get_by_label("For whom"))
    page.keyboard.type("keys")
    page.keyboard.press("Enter")
    press(page, page.get_by_role("button", name="Copy").first)
    press(page, page.get_by_role("button", name="Revoke the token of keys"))
    expect(page.get_by_role("button", name="Revoke the token of keys")).to_have_count(0)
    press(page, page.get_by_role("button", name="Sign out"))
    page.get_by_role("heading", name="Sign in to the console").wait_for()
    press(page, page.get_by_text("Sign in with a token"))
    tab_to(page, page.get_by_label("A token of"))
