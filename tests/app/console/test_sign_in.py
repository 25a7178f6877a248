"""Signing in to the console: the one-time link, the cookie, and who is refused."""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2
import pytest

from support.console import Home
from support.console import home as running
from support.harness import python_server

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with running({"servers": {"gated": python_server("gated")}}) as one:
        yield one


def test_a_link_signs_in_once_and_leaves_no_code_in_the_address(home: Home) -> None:
    """Issue 20: never a token in a URL that stays."""
    link = home.link()
    with httpx2.Client() as first, httpx2.Client() as second:
        entered = first.get(link)
        assert entered.status_code == 303
        assert entered.headers["location"] == "/console/"
        cookie = entered.headers["set-cookie"]
        assert re.search("httponly", cookie, re.IGNORECASE)
        assert re.search("samesite=strict", cookie, re.IGNORECASE)
        assert "Path=/console" in cookie
        assert "Overview" in first.get(link.partition("/enter")[0] + "/").text
        again = second.get(link)
        assert again.status_code == 403
        assert "set-cookie" not in again.headers


def test_cookies_of_two_bridges_have_different_names(home: Home) -> None:
    """Issue 20: cookies ignore ports, so they carry the daemon's key."""
    with running({"servers": {}}) as other, httpx2.Client() as client:
        names = [client.get(one.link()).headers["set-cookie"].partition("=")[0] for one in (home, other)]
    assert len(set(names)) == 2


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 421),
        ({"sec-fetch-dest": "iframe"}, 403),
    ],
)
def test_what_other_pages_ask_for_is_refused(home: Home, headers: dict[str, str], status: int) -> None:
    """Issue 20: of fetch metadata only `same-origin` and `none` pass; no framing, no rebinding."""
    with httpx2.Client() as client:
        link = home.link()
        client.get(link)
        answer = client.get(link.partition("/enter")[0] + "/", headers=headers)
    assert answer.status_code == status
    if status == 200:
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"


def test_without_a_cookie_there_is_nothing_to_see(home: Home) -> None:
    """Issue 20: an ordinary bearer token sees nothing of the console."""
    start = home.link().partition("/enter")[0]
    with httpx2.Client(headers={"authorization": "Bearer anything"}) as client:
        assert client.get(start + "/").headers["location"] == "/console/enter"
        assert client.get(start + "/events", headers={"hx-request": "true"}).status_code == 401
        assert "gated" not in client.get(start + "/enter").text


def test_a_change_needs_the_token_of_its_form(home: Home) -> None:
    with httpx2.Client() as client:
        link = home.link()
        client.get(link)
        start, origin = link.partition("/enter")[0], f"http://{urlsplit(link).netloc}"
        for data in ({}, {"form_token": "x"}):
            assert client.post(f"{start}/sign-out", data=data, headers={"origin": origin}).status_code == 403
        assert client.post(f"{start}/sign-out", data={}).status_code == 403  # says not where it comes from
        page = client.get(f"{start}/").text
        found = re.search(r'name="form_token" value="([0-9a-f]{64})"', page)
        assert found
        done = client.post(f"{start}/sign-out", data={"form_token": found[1]}, headers={"origin": origin})
        assert done.status_code == 303
        assert client.get(f"{start}/").status_code == 303


def test_sign_ins_go_into_the_audit_log() -> None:
    with running({"servers": {}, "audit": {"enabled": True}}) as one:
        with httpx2.Client() as client:
            link = one.link()
            client.get(link)
            client.get(link)  # the link was used, so this is no sign-in
            start = link.partition("/enter")[0]
            found = re.search(r'name="form_token" value="([0-9a-f]{64})"', client.get(f"{start}/").text)
            assert found
            origin = {"origin": f"http://{urlsplit(link).netloc}"}
            client.post(f"{start}/sign-out", data={"form_token": found[1]}, headers=origin)
        one.run("down", "--config", str(one.config))
        shown = one.run("audit", "show", "--json", "--kind", "console.*", "--config", str(one.config))
    lines = [json.loads(line) for line in shown.splitlines()]
    assert [(line["kind"], line["who"], line["detail"]) for line in lines] == [
        ("console.signed_in", "console:ui", "local"),
        ("console.signed_out", "console:ui", "local"),
    ]


def test_a_person_sees_the_servers_and_signs_out(page: "Page") -> None:
    assert page.title().endswith("Overview – mcpbridge")
    page.get_by_role("link", name="gated").wait_for()
    assert "code=" not in page.url
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in to the console").wait_for()


def test_the_page_says_that_the_bridge_is_away_and_comes_back(page: "Page", home: Home) -> None:
    """Issue 20: the daemon goes away, the page says so and comes back by itself."""
    page.get_by_role("link", name="gated").wait_for()
    home.run("down", "--config", str(home.config))
    page.get_by_text("The bridge does not answer").wait_for(state="visible")
    home.run("up", "--config", str(home.config))
    page.get_by_text("The bridge does not answer").wait_for(state="hidden")
    page.get_by_role("link", name="gated").wait_for()


def test_ten_tabs_share_one_stream(page: "Page", home: Home) -> None:
    """Issue 20: a browser allows six connections to a host."""
    tabs = [page.context.new_page() for _ in range(9)]
    for tab in tabs:
        tab.goto(page.url)
        tab.get_by_role("link", name="gated").wait_for()
    home.call("gated/echo", "text=x")
    for tab in [page, *tabs]:
        tab.get_by_text(re.compile(r"[1-9]\d* \(")).first.wait_for()


def test_the_console_can_be_switched_off() -> None:
    with running({"servers": {}, "console": {"enabled": False}}) as one:
        assert "console.enabled = false" in one.run("ui", "--config", str(one.config), code=2)
