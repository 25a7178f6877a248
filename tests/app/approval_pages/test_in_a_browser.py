"""An approver opens the link of a message in a real browser, signs in and decides; the call that waits goes on."""

import concurrent.futures
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from support.approval_team import WITHIN, Place, in_a_thread
from support.console import ARGUMENTS, CHROMIUM, PATIENCE, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with in_a_thread() as place:
        yield place


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    if not CHROMIUM:
        pytest.skip("chromium is not installed: `make browser` installs Debian's")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: "Browser") -> "Iterator[Page]":
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if "Content Security" in message.text else None)
    yield page
    context.close()
    assert problems == []


def asked(place: Place, name: str, text: str) -> "tuple[concurrent.futures.Future[Any], str]":
    """A call that waits, and the link of its message."""
    before = len(place.people.receiver.messages)
    call = place.begins(name, text)
    place.do(place.people.receiver.message(before))
    return call, place.link()


def sign_in(page: "Page", place: Place, name: str, link: str) -> None:
    page.goto(link)
    page.get_by_label("Your token for this bridge").fill(place.people[name].token)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(link)


def test_an_approver_opens_the_link_signs_in_and_approves(place: Place, page: "Page") -> None:
    call, link = asked(place, "ann", "buy it")
    sign_in(page, place, "carol", link)
    assert page.get_by_text("ann@example.com").first.is_visible()
    assert "buy it" in page.get_by_role("group", name="Arguments").inner_text()
    assert not call.done()
    page.get_by_role("button", name="Approve this call").click()
    page.get_by_role("heading", name="Answered").wait_for()
    assert call.result(WITHIN)["content"][0]["text"] == "buy it"


def test_a_no_has_a_reason_and_enter_in_its_field_says_no(place: Place, page: "Page") -> None:
    call, link = asked(place, "ann", "sell it")
    sign_in(page, place, "carol", link)
    page.get_by_label("Why not").fill("not this year")
    page.get_by_label("Why not").press("Enter")
    page.get_by_role("heading", name="Answered").wait_for()
    assert "was not approved: not this year" in call.result(WITHIN)["content"][0]["text"]


def test_whoever_made_the_call_has_no_button(place: Place, page: "Page") -> None:
    call, link = asked(place, "bob", "mine")
    sign_in(page, place, "bob", link)
    assert "you cannot approve it" in page.get_by_role("status").inner_text()
    assert page.get_by_role("button", name="Approve this call").count() == 0
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    sign_in(page, place, "carol", link)
    page.get_by_role("button", name="Deny").click()
    page.get_by_role("heading", name="Answered").wait_for()
    assert call.result(WITHIN)["isError"]


def test_the_pages_can_be_used_by_everybody(place: Place, browser: "Browser") -> None:
    context = browser.new_context(bypass_csp=True, viewport={"width": 390, "height": 800})  # axe is put into the page
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    call, link = asked(place, "ann", "look")
    page.goto(link)
    assert violations(page) == []
    sign_in(page, place, "carol", link)
    assert violations(page) == []
    page.goto(link.rpartition("/")[0])
    assert violations(page) == []
    page.goto(link)
    page.get_by_role("button", name="Deny").click()
    page.get_by_role("heading", name="Answered").wait_for()
    assert violations(page) == []
    call.result(WITHIN)
    context.close()
