"""The inbox of approvals as a person uses it, in a real browser (issue 20, item 4)."""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from support.console import ARGUMENTS, PATIENCE, WHOLE_CHROMIUM, Desk, Home, desk_of
from support.console import home as running
from support.harness import python_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

expect: Any = pytest.importorskip("playwright.sync_api").expect

_GATED = {"servers": {"gated": python_server("gated")}}
_RULE = {"tools": "gated/echo", "permission": "require_approval", "reason": "it speaks to customers"}

_MARK_UPDATES = """
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.pathInfo.requestPath === location.pathname) document.documentElement.dataset.updated = "yes";
});
"""
"""What is asked for anew by itself, and has been swapped in, leaves a mark on the page."""


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with running({**_GATED, "permissions": [_RULE]}) as one:
        yield one


@pytest.fixture
def desk(home: Home) -> Iterator[Desk]:
    with desk_of(home) as one:
        yield one


def open_inbox(page: "Page") -> None:
    page.get_by_role("link", name="Approvals").first.click()
    page.get_by_role("heading", name="Approvals", exact=True).wait_for()


def await_call(page: "Page", text: str = "") -> Any:
    """The one call that waits, once it can be answered. `text` of its arguments: the one before may still show."""
    card = page.get_by_role("article").filter(has_text=text)
    card.wait_for()
    page.locator("#inbox:not(.settling)").wait_for()
    return card


def test_a_person_approves_and_denies_and_sees_what_is_new(page: "Page", desk: Desk) -> None:
    """Issue 20: rule, reason, arguments, what is new; approve once, deny; a count in the title."""
    open_inbox(page)
    page.get_by_text("No call waits for you").wait_for()
    assert page.title() == "Approvals – mcpbridge"
    desk.call("gated__echo", text="hello")
    card = await_call(page)
    expect(page).to_have_title("(1) Approvals – mcpbridge", timeout=PATIENCE)
    for words in ("rule 1 of `permissions`", "it speaks to customers", "desk", '"text": "hello"'):
        expect(card).to_contain_text(words, timeout=PATIENCE)
    card.get_by_role("button", name="Approve once").click()
    page.get_by_text("Approved: gated/echo.").wait_for()
    assert desk.text() == "hello"
    desk.call("gated__echo", text="goodbye")
    new = await_call(page).get_by_role("region", name="What is new")
    expect(new.get_by_role("row", name="/text")).to_contain_text('"hello"', timeout=PATIENCE)
    expect(new.get_by_role("row", name="/text")).to_contain_text('"goodbye"', timeout=PATIENCE)
    page.get_by_role("button", name="Deny", exact=True).click()
    page.get_by_text("Denied: gated/echo.").wait_for()
    assert desk.answer()["isError"]
    expect(page).to_have_title("Approvals – mcpbridge", timeout=PATIENCE)
    ended = page.get_by_role("region", name="Answered and expired").get_by_role("row")
    expect(ended.nth(1)).to_contain_text("denied by console:ui", timeout=PATIENCE)
    expect(ended.nth(2)).to_contain_text("approved by console:ui", timeout=PATIENCE)
    expect(ended.nth(2)).to_contain_text('{"text":"hello"}', timeout=PATIENCE)


def test_a_person_approves_a_call_for_the_session(page: "Page", desk: Desk) -> None:
    """Issue 20: approve for the session: the same call is not asked for again in it, another one is."""
    open_inbox(page)
    desk.call("gated__echo", text="often")
    await_call(page).get_by_role("button", name="Approve for the session").click()
    page.get_by_text("Approved, and the same call again in this session: gated/echo.").wait_for()
    assert desk.text() == "often"
    desk.call("gated__echo", text="often")
    assert desk.text() == "often"
    desk.call("gated__echo", text="seldom")
    await_call(page).get_by_role("button", name="Deny", exact=True).click()
    assert desk.answer()["isError"]


def test_a_person_denies_a_call_for_the_session(page: "Page", desk: Desk) -> None:
    """Issue 20: deny for the session: the same call is refused without a question, another one is asked for."""
    open_inbox(page)
    desk.call("gated__echo", text="never")
    await_call(page).get_by_role("button", name="Deny for the session").click()
    page.get_by_text("Denied, and the same call again in this session: gated/echo.").wait_for()
    assert desk.answer()["isError"]
    desk.call("gated__echo", text="never")
    assert "was not approved, for this session" in desk.answer()["content"][0]["text"]
    desk.call("gated__echo", text="perhaps")
    await_call(page).get_by_role("button", name="Approve once").click()
    assert desk.text() == "perhaps"


def test_a_running_call_that_waits_leads_to_the_inbox_and_every_page_counts_it(page: "Page", desk: Desk) -> None:
    """Issue 20: a count in the title, also of pages whose parts are made anew; their place in the navigation."""
    desk.call("gated__echo", text="patient")
    start = page.url.rstrip("/")
    page.add_init_script(_MARK_UPDATES)
    for path, name, place in (("sessions", "Sessions", "Calls"), ("timeline", "Timeline", "Calls")):
        page.goto(f"{start}/{path}")
        page.locator("html[data-updated=yes]").wait_for(state="attached")
        expect(page).to_have_title(f"(1) {name} – mcpbridge", timeout=PATIENCE)
        current = page.get_by_role("navigation", name="Pages").locator("[aria-current=page]")
        expect(current).to_have_text(place, timeout=PATIENCE)
    page.goto(f"{start}/calls")
    running = page.get_by_role("region", name="Running calls").last
    running.get_by_role("link", name="gated/echo").click()
    page.get_by_role("heading", name="gated/echo running").wait_for()
    page.get_by_role("link", name="waits for approval").click()
    await_call(page).get_by_role("button", name="Deny", exact=True).click()
    assert desk.answer()["isError"]


def test_a_person_answers_by_keys_which_do_nothing_in_fields(page: "Page", desk: Desk) -> None:
    """Issue 20: keyboard shortcuts; explained on the page, and off where somebody types or does not want them."""
    open_inbox(page)
    page.get_by_text("Keyboard shortcuts").click()
    page.get_by_text("approve once the call that has the focus").wait_for()
    desk.call("gated__echo", text="one")
    card = await_call(page)
    page.keyboard.press("a")  # no call has the focus
    page.keyboard.press("j")
    expect(card).to_be_focused(timeout=PATIENCE)
    page.evaluate("document.querySelector('article').insertAdjacentHTML('beforeend', '<input id=field>')")
    page.locator("#field").focus()
    page.keyboard.press("d")
    assert page.locator("#field").input_value() == "d"
    page.keyboard.press("Tab")
    card.focus()
    page.keyboard.press("a")
    page.get_by_text("Approved: gated/echo.").wait_for()
    assert desk.text() == "one"
    page.get_by_label("Shortcuts are on").uncheck()
    desk.call("gated__echo", text="two")
    card = await_call(page)
    card.focus()
    page.keyboard.press("d")
    page.keyboard.press("k")
    page.get_by_label("Shortcuts are on").check()
    card.focus()
    page.keyboard.press("s")
    page.get_by_text("Approved, and the same call again").wait_for()
    assert desk.text() == "two", "the keys were off when it was denied"


def test_a_call_that_just_appeared_is_answered_by_no_key_that_was_meant_for_another(page: "Page", desk: Desk) -> None:
    """The focus stays on the call that has it when another one comes."""
    open_inbox(page)
    desk.call("gated__echo", text="first")
    first = await_call(page)
    page.keyboard.press("j")
    expect(first).to_be_focused(timeout=PATIENCE)
    id_ = first.get_attribute("id")
    desk.call("gated__echo", text="second")
    page.get_by_role("article").nth(1).wait_for()
    page.locator("#inbox:not(.settling)").wait_for()
    expect(page.locator(f"#{id_}")).to_be_focused(timeout=PATIENCE)
    expect(page).to_have_title("(2) Approvals – mcpbridge", timeout=PATIENCE)
    page.keyboard.press("d")
    page.locator(f"#{id_}").wait_for(state="detached")
    page.keyboard.press("d")  # no call has the focus
    expect(await_call(page)).to_contain_text('"second"', timeout=PATIENCE)
    page.get_by_role("button", name="Approve once").click()
    assert desk.text() == "second"


_NOTED = """
    window.Notification = class extends window.Notification {
      constructor(title, more) {
        super(title, more);
        const noted = document.documentElement.dataset;
        noted.noted = `${noted.noted || ""}${title}: ${more.body}`;
      }
    };
"""


def test_a_person_is_notified_on_whichever_page_is_open(browser: "Browser", home: Home, desk: Desk) -> None:
    """Issue 20: a browser notification, once somebody wants it; it says nothing that a server or client said."""
    if not WHOLE_CHROMIUM:
        pytest.skip("the whole chromium is not installed, which shows notifications: `make browser` installs Debian's")
    whole = browser.browser_type.launch(executable_path=WHOLE_CHROMIUM, args=ARGUMENTS)
    context = whole.new_context()
    context.set_default_timeout(PATIENCE)
    context.add_init_script(_NOTED)
    page = context.new_page()
    link = home.link()
    page.goto(link)
    context.grant_permissions(["notifications"], origin=link.partition("/console")[0])
    open_inbox(page)
    desk.call("gated__echo", text="unwanted")
    await_call(page).get_by_role("button", name="Deny", exact=True).click()
    desk.answer()
    assert page.locator("html[data-noted]").count() == 0
    page.get_by_role("button", name="Notify me of new ones").click()
    page.get_by_role("button", name="Stop notifying me").wait_for()
    page.get_by_role("link", name="Catalog").click()
    page.get_by_role("heading", name="Catalog").wait_for()
    desk.call("gated__echo", text="wanted")
    page.locator("html[data-noted]").wait_for(state="attached")
    assert page.locator("html").get_attribute("data-noted") == "mcpbridge: approval: One call waits for you."
    open_inbox(page)
    await_call(page).get_by_role("button", name="Approve once").click()
    assert desk.text() == "wanted"
    page.get_by_role("button", name="Stop notifying me").click()
    page.get_by_role("button", name="Notify me of new ones").wait_for()
    whole.close()


_NOTES_ONLY = """
    localStorage.setItem("mcpbridge-notify", "on");
    window.Notification = class {
      static permission = "granted";
      constructor(title, more) { document.documentElement.dataset.noted = `${title}: ${more.body}`; }
    };
"""
"""Chromium without windows shows no notifications: this notes them."""


def test_a_call_that_comes_while_a_page_loads_is_notified_of(page: "Page", desk: Desk) -> None:
    """The page has no script yet that would show the notification, while another page hears of the call already."""
    open_inbox(page)
    other = page.context.new_page()
    other.add_init_script(_NOTES_ONLY)
    held: list[Route] = []
    other.route("**/notify.js", lambda route: held.append(route))  # noqa: PLW0108 - a handler that is no function fails
    other.goto(page.url.replace("approvals", "catalog"), wait_until="commit")
    other.get_by_role("heading", name="Catalog").wait_for()
    desk.call("gated__echo", text="early")
    card = await_call(page)
    for route in held:
        route.continue_()
    other.locator("html[data-noted]").wait_for(state="attached")
    assert other.locator("html").get_attribute("data-noted") == "mcpbridge: approval: One call waits for you."
    card.get_by_role("button", name="Deny", exact=True).click()
    assert desk.answer()["isError"]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_calls_that_wait_fit_and_have_nothing_to_mend(
    browser: "Browser", home: Home, desk: Desk, scheme: Any, width: int
) -> None:
    """Issue 20: light and dark, 390 px, axe-core; with a call in the inbox, and one that was answered."""
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(home.link())
    open_inbox(page)
    for text in ("short", "a long text " * 100 + "y" * 500):
        desk.call("gated__echo", text=text)
        await_call(page, text.strip()).get_by_role("button", name="Approve once").click()
        desk.text()
    desk.call("gated__echo", text="z" * 300)
    await_call(page, "z" * 300).get_by_role("region", name="What is new").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.evaluate("Promise.all(document.getAnimations().map(one => one.finished))")  # else colours are on their way
    found = Axe().run(page).response["violations"]
    assert [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found] == []
    page.get_by_role("button", name="Deny", exact=True).click()
    desk.answer()
    context.close()


def test_a_call_that_nobody_answered_in_time_stays_visible(browser: "Browser") -> None:
    """Issue 20: expired ones stay visible; and a late yes lets the same call pass."""
    approval = {"timeout": 0.5}
    with running({**_GATED, "permissions": [_RULE], "approval": approval}) as home, desk_of(home) as desk:
        desk.call("gated__echo", text="late")
        assert re.search("Nobody answered", json.dumps(desk.answer()))
        context = browser.new_context()
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(home.link())
        open_inbox(page)
        expect(await_call(page)).to_contain_text("gave up waiting; can still be approved", timeout=PATIENCE)
        page.get_by_role("button", name="Approve once").click()
        page.get_by_text("it passes when it is made again").wait_for()
        desk.call("gated__echo", text="late")
        assert desk.text() == "late"
        desk.call("gated__echo", text="never")
        assert re.search("Nobody answered", json.dumps(desk.answer()))
        await_call(page).get_by_role("button", name="Deny", exact=True).click()
        row = page.get_by_role("region", name="Answered and expired").get_by_role("row").nth(1)
        expect(row).to_contain_text("denied by console:ui", timeout=PATIENCE)
        expect(row).to_contain_text("never", timeout=PATIENCE)
        context.close()
