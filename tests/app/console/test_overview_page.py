"""The overview as a person uses it, and what every page says on top, in a real browser (issue 20, item 1)."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from support.console import PATIENCE, Home, desk_of
from support.console import home as running
from support.harness import python_server

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

expect: Any = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE)

CONFIG: dict[str, Any] = {
    "servers": {"gated": python_server("gated"), "gone": {"command": "no-such-program"}},
    "permissions": [{"tools": "gated/pass_gate", "permission": "require_approval", "reason": "it waits at a gate"}],
}
PAGES = ("Overview", "Calls", "Catalog", "Approvals", "Results", "Servers", "Savings", "Settings")


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with running(CONFIG) as one:
        yield one


def card(page: "Page", server: str) -> "Locator":
    return page.get_by_role("article").filter(has=page.get_by_role("link", name=server, exact=True))


def test_a_person_sees_what_each_server_does_and_it_changes_by_itself(page: "Page", home: Home) -> None:
    """Issue 20: servers as cards (state, why, uptime, era, transport, calls, latency, errors, memory, restarts)."""
    gated = card(page, "gated")
    for words in ("ready", "stdio, 2025-11-25 (legacy)", "Up for", "p50, p95", "Memory", "Restarts"):
        expect(gated).to_contain_text(words)
    expect(card(page, "gone")).to_contain_text("command not found: no-such-program")
    expect(gated).to_contain_text(re.compile(r"Calls\s*0 \("))
    home.call("gated/echo", "text=x")
    expect(gated).to_contain_text(re.compile(r"Calls\s*1 \("))
    gated.get_by_role("link", name="1", exact=True).click()
    page.get_by_role("heading", name="Calls", exact=True).wait_for()
    assert page.url.endswith("/calls?server=gated")


def test_a_person_sees_who_is_connected_what_waits_and_what_was_saved(page: "Page", home: Home) -> None:
    """Issue 20: connected clients; approvals waiting; tokens saved today by routing, slimming, previews; live."""
    main = page.get_by_role("main")
    with desk_of(home) as desk:
        clients = page.get_by_role("region", name="Clients")
        expect(clients.get_by_role("row").filter(has_text="desk")).to_have_count(1)
        desk.ask("tools/list")
        desk.answer()
        desk.call("gated__pass_gate", gate="none")
        waiting = main.get_by_role("listitem").filter(has_text="gated/pass_gate")
        expect(waiting).to_contain_text("asked by desk: it waits at a gate")
        expect(page).to_have_title("(1) Overview – mcpbridge")
        waiting.get_by_role("link").click()
        page.locator("#inbox:not(.settling)").get_by_role("button", name="Deny", exact=True).click()
        assert desk.answer()["isError"]
    page.get_by_role("link", name="Overview").click()
    expect(main.get_by_text("No client is connected")).to_be_visible()
    for means in ("By routing", "By slimming", "By previews"):
        expect(page.locator("dl.numbers div").filter(has_text=means)).to_contain_text("estimated")
    page.locator("dl.numbers div").filter(has_text="By slimming").get_by_role("link").click()
    page.get_by_role("heading", name="Savings", exact=True).wait_for()
    expect(page.get_by_role("region", name="Tokens of lists of tools")).to_contain_text("desk")


def test_a_person_has_the_doctor_look(page: "Page") -> None:
    """Issue 20: findings of the doctor."""
    page.get_by_role("button", name="Examine").click()
    findings = page.locator("ul.findings")
    findings.get_by_role("link", name="gone").first.wait_for(timeout=4 * PATIENCE)
    expect(findings).to_contain_text("no-such-program")
    page.reload()
    findings.get_by_role("link", name="gone").first.wait_for()


def test_every_page_names_the_file_and_says_when_it_is_broken(page: "Page", home: Home) -> None:
    """Issue 20: the configuration's path in the header; a banner with line and reason: the former one runs."""
    good = home.config.read_text()
    banner = page.get_by_role("alert").filter(has_text="servers.toml is broken")
    try:
        home.config.write_text(f"{good}\n[bridge]\nnonsense = 1\n")
        banner.wait_for()  # the page that is open hears of it
        line = len(home.config.read_text().splitlines())
        for title in PAGES:
            page.get_by_role("navigation", name="Pages").get_by_role("link", name=title).click()
            page.get_by_role("heading", level=1, name=title).wait_for()
            assert page.get_by_title("The configuration that this bridge runs").inner_text() == str(home.config)
            expect(banner).to_contain_text("nonsense")
            expect(banner).to_contain_text(f"(line {line})")
            expect(banner).to_contain_text("The former configuration runs")
        page.get_by_role("link", name="Overview").click()
        expect(card(page, "gated")).to_contain_text("ready")
    finally:
        home.config.write_text(good)
    banner.wait_for(state="detached")
