"""Signing in to a server, and out, from its page in a browser, at a real authorization server (issue 20, item 6)."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.server.auth.provider import AuthorizeError

from support.console import NARROW, PATIENCE, Home, violations
from support.console import home as running
from support.upstreams.oauth_server import OAuthWorld, oauth_world

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

expect: Any = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as one:
        yield one


@pytest.fixture(scope="module")
def world(portal: BlockingPortal) -> Iterator[OAuthWorld]:
    with portal.wrap_async_context_manager(oauth_world()) as one:
        yield one


@pytest.fixture(scope="module")
def home(world: OAuthWorld) -> Iterator[Home]:
    with running({"servers": {"guarded": {"url": world.url}}}) as one:
        yield one


def open_server(page: "Page") -> Any:
    """The page of the server; the part that changes by itself."""
    page.get_by_role("link", name="Servers", exact=True).first.click()
    page.get_by_role("link", name="guarded").first.click()
    page.get_by_role("heading", name="guarded", exact=True).wait_for()
    return page.locator("#state")


def begin(page: "Page") -> None:
    """Press the button that begins; the page says where to go."""
    open_server(page).get_by_role("button", name="Sign in to it").click()
    page.get_by_role("heading", name="Sign in to guarded").wait_for()
    page.get_by_role("button", name="Give up").wait_for()


def test_a_person_signs_in_and_out(page: "Page", home: Home, world: OAuthWorld) -> None:
    """Issue 20: sign in and out (OAuth): what a person sees before, meanwhile and after."""
    state = open_server(page)
    expect(state).to_contain_text("needs sign-in")
    expect(state).to_contain_text(re.compile(r"Signed in\s*no"))
    begin(page)
    go = page.get_by_role("button", name="Continue at")
    assert world.issuer.endswith(go.inner_text().removeprefix("Continue at "))
    expect(open_server(page)).to_contain_text("not yet: it waits for you")
    page.get_by_role("button", name="Go on signing in").click()
    with page.expect_popup() as opened:
        go.click()
    expect(opened.value.get_by_role("heading")).to_have_text("Signed in to guarded")
    opened.value.close()
    page.get_by_text("Signed in to guarded.").wait_for()  # by itself
    page.get_by_role("link", name="To guarded").click()
    expect(state).to_contain_text("ready")
    expect(state).to_contain_text(re.compile(r"Signed in\s*yes"))
    assert "read it" in home.call("guarded/read", "text=it")
    tokens = [*world.server.access, *world.server.refresh]
    assert not [token for token in tokens if token in page.content()]
    state.get_by_role("button", name="Sign out of it").click()
    expect(state).to_contain_text("Signed out of guarded.")
    expect(state).to_contain_text("needs sign-in")
    expect(state).to_contain_text("somebody signed out")
    assert world.server.refresh == {}, "the authorization server took it back"


def test_a_sign_in_that_is_refused_says_so_and_can_be_tried_again(
    page: "Page", world: OAuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> str:
        raise AuthorizeError("access_denied", "not\u202e this <b>person</b>")

    begin(page)
    with monkeypatch.context() as bent:
        bent.setattr(world.server, "authorize", refuse)
        with page.expect_popup() as opened:
            page.get_by_role("button", name="Continue at").click()
        expect(opened.value.get_by_role("heading")).to_have_text("Not signed in to guarded")
        opened.value.close()
    expect(page.locator("#sign-in")).to_contain_text("the sign-in was declined not this <b>person</b>")
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("button", name="Continue at").wait_for()
    page.get_by_role("button", name="Give up").click()


def test_a_sign_in_is_given_up_and_begun_again_on_another_machine(page: "Page", world: OAuthWorld) -> None:
    """Who gives up has no trace left; the address that a browser elsewhere ended at can be pasted."""
    begin(page)
    first = page.get_by_role("button", name="Continue at").get_attribute("href")
    page.get_by_role("button", name="Give up").click()
    state = page.locator("#state")
    expect(state).to_contain_text("The sign-in was given up.")
    expect(state).to_contain_text(re.compile(r"Signed in\s*no"))
    begin(page)
    again = page.get_by_role("button", name="Continue at").get_attribute("href")
    assert again
    assert again != first
    answer = page.context.request.get(again, max_redirects=0)
    page.get_by_text("The browser ended at an address").click()
    page.get_by_label("Paste the address here").fill("http://127.0.0.1/callback?code=x&state=y")
    page.get_by_role("button", name="Take it").click()
    page.get_by_text("This is not").wait_for()
    page.go_back()
    page.get_by_text("The browser ended at an address").click()
    page.get_by_label("Paste the address here").fill(answer.headers["location"])
    page.get_by_role("button", name="Take it").click()
    page.get_by_text("Signed in to guarded.").wait_for()
    open_server(page).get_by_role("button", name="Sign out of it").click()
    expect(state).to_contain_text("Signed out of guarded.")


def nothing(_: dict[str, Any]) -> None:
    """What an authorization server says of itself that says nothing."""


def test_a_server_that_says_not_where_to_sign_in(page: "Page", world: OAuthWorld) -> None:
    with pytest.MonkeyPatch.context() as bent:
        bent.setattr(world, "bend_metadata", nothing)
        open_server(page).get_by_role("button", name="Sign in to it").click()
        expect(page.locator("#sign-in .banner.bad")).to_contain_text("guarded")
    page.get_by_role("link", name="To guarded").click()
    expect(page.locator("#state .banner.bad")).to_be_visible()


def test_the_page_of_signing_in_has_nothing_to_mend(browser: "Browser", home: Home, world: OAuthWorld) -> None:
    """Issue 20: axe-core, both themes, 390 px: before, while the bridge waits for the person, and after a failure."""
    context = browser.new_context(**NARROW)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(home.link())
    open_server(page)
    found = violations(page)
    begin(page)
    page.get_by_text("The browser ended at an address").click()
    found += violations(page)
    page.get_by_label("Paste the address here").fill("http://127.0.0.1/callback?code=x&state=y")
    page.get_by_role("button", name="Take it").click()
    page.get_by_text("This is not").wait_for()
    found += violations(page)
    page.go_back()
    page.get_by_role("button", name="Give up").click()
    page.get_by_text("The sign-in was given up.").wait_for()
    with pytest.MonkeyPatch.context() as bent:
        bent.setattr(world, "bend_metadata", nothing)
        page.locator("#state").get_by_role("button", name="Sign in to it").click()
        page.locator("#sign-in .banner.bad").wait_for()
        found += violations(page)
    context.close()
    assert found == []
