"""The catalog as a person uses it, in a real browser (issue 20, item 3)."""

import json
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.console import Home
from support.console import home as running
from support.harness import python_server

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHOP = {"command": sys.executable, "args": ["-m", "mcpbridge.app.demo.servers.shop_main"]}


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with running({"servers": {"shop": SHOP, "tryable": python_server("tryable")}}) as one:
        one.config.write_text(one.config.read_text() + "# a comment that stays\n")
        yield one


def open_tool(page: "Page", tool: str) -> None:
    page.get_by_role("link", name="Catalog").first.click()
    page.get_by_label("Name contains").fill(tool.partition("/")[2])
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("link", name=tool, exact=True).click()
    page.get_by_role("heading", name=tool, level=1).wait_for()


def test_a_person_types_a_task_and_sees_what_made_the_ranking(page: "Page") -> None:
    """Issue 20: a search box that is the router: the ranking with scores, and which words and vectors made it."""
    page.get_by_role("link", name="Catalog").first.click()
    page.get_by_label("What is to be done?").fill("give the customer their money back")
    first = page.locator("ol.ranking > li").first
    first.get_by_role("link", name="shop/refund_order").wait_for()
    assert "q=give+the+customer" in page.url
    assert 0 < float(first.locator(".score").inner_text()) <= 1
    first.get_by_text("Why", exact=True).click()
    table = first.get_by_role("table").inner_text()
    assert re.search(r"money\s+0\.\d{3}", table)
    assert "description" in table
    assert re.search(r"nearness 0\.\d\d; nearest words: ", table)
    assert "words 0." in (first.get_by_role("img").get_attribute("aria-label") or "")
    page.get_by_text("What a model is answered").click()
    page.get_by_text("shop__refund_order(").last.wait_for()
    page.get_by_label("What is to be done?").fill("shop/get_order")
    page.get_by_text("named", exact=True).first.wait_for()
    page.reload()
    assert page.get_by_label("What is to be done?").input_value() == "shop/get_order"


def test_a_person_chooses_how_a_tool_is_slimmed_and_for_which_client(page: "Page") -> None:
    """Issue 20: as the server sent it, as slimmed, and as each known client sees it, with tokens."""
    open_tool(page, "shop/find_orders")
    page.get_by_label("As the server sent it").get_by_text('"inputSchema"').wait_for()
    page.get_by_label("Slimmed to").select_option("signatures")
    page.get_by_label("Signature", exact=True).get_by_text("shop__find_orders(").wait_for()
    page.get_by_label("Client", exact=True).select_option("Codex")
    page.get_by_text("mcp__mcpbridge__shop__find_orders").wait_for()
    page.get_by_text("All known clients").click()
    table = page.get_by_role("region", name="All known clients")
    table.get_by_role("row", name=re.compile("Cursor yes")).wait_for()
    assert re.search(r"Claude Code\s+yes\s+mcp__mcpbridge__shop__find_orders\s+\d+", table.inner_text())


def test_a_person_fills_the_form_in_and_tries_the_tool(page: "Page") -> None:
    """Issue 20: a form from the input schema: objects, lists, choices, alternatives, required, defaults, raw JSON."""
    open_tool(page, "tryable/order")
    form = page.locator("form.arguments")
    assert form.get_by_label("count").input_value() == "1"
    form.get_by_role("button", name="Call it").click()
    page.get_by_text("size is required").wait_for()
    form.get_by_label("size").select_option("large")
    form.get_by_label("city").fill("Rome")
    tags = form.get_by_role("group", name="tags")
    for text in ("a", "b", "c"):
        tags.get_by_role("button", name="Add to tags").click()
        page.keyboard.type(text)
    tags.get_by_role("button", name="Remove").nth(1).click()
    form.get_by_role("button", name="Add to lines").click()
    form.get_by_label("item", exact=False).last.fill("book")
    form.get_by_label("gift").select_option("true")
    form.get_by_label("note").fill('{"any": 1}')
    form.get_by_role("button", name="Call it").click()
    page.get_by_role("heading", name="Result").wait_for()
    told = page.get_by_label("Text of the result").inner_text()
    expected = {"count": 1, "size": "large", "to": {"city": "Rome"}, "tags": ["a", "c"]}
    expected |= {"lines": [{"item": "book", "gift": True}], "note": {"any": 1}}
    assert json.loads(told.removeprefix("ordered: ")) == expected
    form.get_by_role("button", name="Raw JSON").click()
    box = page.get_by_label("Arguments, as a JSON object")
    assert json.loads(box.input_value()) == expected
    box.fill('{"count": 2, "size": "small"}')
    page.get_by_role("button", name="Call it").click()
    page.get_by_text('ordered: {"count": 2, "size": "small"}').wait_for()
    page.get_by_role("link", name="See it among the calls").wait_for()


def test_a_person_sees_progress_and_cancels(page: "Page", home: Home) -> None:
    """Issue 20: with progress and cancel."""
    open_tool(page, "tryable/wait")
    page.get_by_role("button", name="Call it").click()
    page.get_by_text("a quarter is done").wait_for()
    assert page.get_by_role("progressbar", name="Progress").get_attribute("value") == "0.2500"
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("heading", name="Cancelled").wait_for()
    assert "1 withdrawn" in home.call("tryable/withdrawn")


def test_a_person_switches_a_tool_off_and_on_pins_and_hides_it(page: "Page", home: Home) -> None:
    """Issue 20: on/off, hide, pin; comments of the file stay."""
    open_tool(page, "shop/get_order")
    page.get_by_role("button", name="Switch off").click()
    page.get_by_text("It is switched off").wait_for()
    assert "disabled = true" in home.config.read_text()
    home.call("shop/get_order", "number=1", code=None)
    page.get_by_role("button", name="Switch on").click()
    page.get_by_role("button", name="Pin", exact=True).click()
    page.get_by_text("always: pinned by shop/get_order").wait_for()
    page.get_by_role("button", name="Hide", exact=True).click()
    page.get_by_text("never: hidden by shop/get_order").wait_for()
    page.get_by_label("Client", exact=True).select_option("claude-code")
    page.get_by_text("find_tools finds it, and it can be called").first.wait_for()
    written = home.config.read_text()
    assert "# a comment that stays" in written
    assert 'hide = ["shop/get_order"]' in written
    page.get_by_role("button", name="Neither pin nor hide").click()
    page.get_by_text("as the mode of each client decides").wait_for()
    page.get_by_role("link", name="Catalog").first.click()
    page.get_by_role("heading", name="Catalog").wait_for()


def test_prompts_and_resources_have_their_lists(page: "Page") -> None:
    page.get_by_role("link", name="Catalog").first.click()
    for kind in ("Prompts", "Resources", "Templates"):
        page.get_by_role("link", name=re.compile(f"^{kind}")).click()
        page.get_by_text("No server offers").or_(page.get_by_role("table")).first.wait_for()
