"""A person signs in to pages of the bridge in a real browser: cookies, redirects and headers are the browser's own."""

import asyncio
import concurrent.futures
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.approval_team import WITHIN, Place, in_a_thread
from support.console import ARGUMENTS, CHROMIUM, PATIENCE
from support.identity_providers import MockProvider, mock_provider

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


async def known(provider: MockProvider) -> None:
    for name, groups in (("ann", ["staff"]), ("carol", ["leads"])):
        await provider.claims(name, groups=groups, email=f"{name}@example.com", email_verified=True)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with mock_provider() as provider, concurrent.futures.ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, known(provider)).result(WITHIN)
        sign_in = {"issuer": provider.issuer, "client_id": "bridge", "client_secret": "secret"}
        with in_a_thread(sign_in=sign_in, roles={"leads": {"console": "admin"}}) as place:
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


def sign_in(page: "Page", name: str) -> None:
    page.get_by_role("button", name="Sign in with your account").click()
    page.fill('input[name="sub"]', name)
    page.get_by_role("button", name="Authorize").click()


def test_an_approver_signs_in_at_the_provider_and_approves(place: Place, page: "Page") -> None:
    call = place.begins("dave", "buy it")
    place.do(place.people.receiver.message(len(place.people.receiver.messages)))
    page.goto(place.link())
    sign_in(page, "carol")
    page.wait_for_url(place.link())
    page.get_by_role("button", name="Approve this call").click()
    page.get_by_role("heading", name="Answered").wait_for()
    assert call.result(WITHIN)["content"][0]["text"] == "buy it"


def test_the_console_opens_for_whom_a_role_opens_it(place: Place, page: "Page") -> None:
    page.goto(f"{place.people.origin}/console/")
    sign_in(page, "carol")
    page.get_by_role("heading", name="Overview").first.wait_for()
    page.get_by_role("button", name="Sign out").first.click()
    page.get_by_role("heading", name="Sign in to the console").wait_for()
    page.goto(f"{place.people.origin}/console/calls")
    page.get_by_role("heading", name="Sign in to the console").wait_for()


def test_an_open_page_of_who_is_put_out_leads_to_the_sign_in(place: Place, page: "Page") -> None:
    """In every tab, also in one that shows something else than what has changed."""
    page.goto(f"{place.people.origin}/console/")
    sign_in(page, "carol")
    page.get_by_role("heading", name="Overview").first.wait_for()
    other = page.context.new_page()
    other.goto(f"{place.people.origin}/console/settings")
    other.get_by_role("heading", name="Settings").first.wait_for()
    issuer = place.people.bridge.settings.auth.sign_in
    assert issuer is not None
    place.do(place.people.bridge.user_accounts.put_out(f"{issuer.provider_issuer}#carol"))
    for one in (page, other):
        one.get_by_text("You are signed out").wait_for()
        one.get_by_role("button", name="Sign in with your account").wait_for()
        assert "/console/enter" in one.url
    sign_in(other, "carol")
    other.get_by_role("heading", name="Overview").first.wait_for()


def test_whoever_no_role_opens_the_console_to_sees_what_is_theirs(place: Place, page: "Page") -> None:
    page.goto(f"{place.people.origin}/console/")
    sign_in(page, "ann")
    page.wait_for_url(f"{place.people.origin}/approvals")
    page.get_by_text("No call waits for you").wait_for()
