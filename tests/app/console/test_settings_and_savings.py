"""The pages of settings and savings, as a person uses them."""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.console import Home, desk_of
from support.console import home as running
from support.harness import python_server

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    config = {"servers": {"gated": python_server("gated")}, "results": {"threshold": 5000}}
    with running(config) as one:
        (one.folder / ".cursor").mkdir()
        (one.folder / ".cursor/mcp.json").write_text('{"mcpServers": {}}')
        one.call("gated/echo", "text=hello")
        yield one


def test_a_person_sees_where_each_value_comes_from(page: "Page") -> None:
    """Issue 20, item 8."""
    page.get_by_role("link", name="Settings").click()
    row = page.get_by_role("row").filter(has_text="results.threshold")
    assert "5000" in row.inner_text()
    assert "servers.toml" in row.inner_text()
    page.get_by_role("link", name="Show all values").click()
    assert "default" in page.get_by_role("row").filter(has_text="daemon.idle_exit").inner_text()


def test_a_person_makes_a_token_and_revokes_it(page: "Page", home: Home) -> None:
    page.get_by_role("link", name="Settings").click()
    page.get_by_label("For whom").fill("lou")
    page.get_by_label("Who may").select_option("console")
    page.get_by_role("button", name="Make a token").click()
    token = page.locator("#new-token").inner_text()
    assert token.startswith("mcpb_")
    text = home.config.read_text()
    assert token not in text
    assert 'name = "lou"' in text
    assert "console = true" in text
    page.get_by_role("link", name="Settings").click()
    assert token not in page.content()
    page.get_by_role("button", name="Revoke the token of lou").click()
    page.get_by_text("No token is configured").wait_for()
    assert "lou" not in home.config.read_text()


def test_a_person_installs_the_bridge_in_a_client_and_takes_it_out(page: "Page", home: Home) -> None:
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Install in Cursor").click()
    page.get_by_role("button", name="Uninstall from Cursor").wait_for()
    assert "mcpbridge" in json.loads((home.folder / ".cursor/mcp.json").read_text())["mcpServers"]
    page.get_by_role("button", name="Uninstall from Cursor").click()
    page.get_by_role("button", name="Install in Cursor").wait_for()
    assert json.loads((home.folder / ".cursor/mcp.json").read_text())["mcpServers"] == {}


def test_a_person_sees_what_was_saved_and_what_costs_most(page: "Page", home: Home) -> None:
    """Issue 20, item 7: by day, server, tool, client; estimated and counted told apart."""
    with desk_of(home) as desk:
        desk.ask("tools/list")
        desk.answer()
    page.get_by_role("link", name="Savings").click()
    page.locator(".tag").get_by_text("estimated", exact=True).wait_for()
    for means in ("By routing", "By slimming", "By previews"):
        assert "estimated" in page.locator("dl.numbers div").filter(has_text=means).inner_text()
    row = page.get_by_role("region", name="Tokens of lists of tools").get_by_role("row").filter(has_text="desk")
    assert re.search(r"desk\s+1\s+\d+\s+\d+\s+\d+\s+\d+\s+-?\d+\s+estimated", row.inner_text())
    page.get_by_role("cell", name="gated/echo").first.wait_for()
    for by in ("day", "server", "client", "tool"):
        page.get_by_label("By").select_option(by)
        page.get_by_role("button", name="Show").click()
        page.get_by_role("columnheader", name=re.compile(by, re.IGNORECASE)).first.wait_for()
    page.get_by_label("Dollars per million tokens").fill("nonsense")
    page.get_by_role("button", name="Show").click()
    assert page.get_by_label("Dollars per million tokens").input_value() == "3.0"
