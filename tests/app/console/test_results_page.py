"""The page of kept results, as a person uses it."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx2
import pytest

from mcpbridge.app.console.pages.result_view import view_of
from support.console import Home
from support.console import home as running
from support.harness import python_server
from support.programs import preloaded_bridge

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHOP = {"command": sys.executable, "args": ["-m", "mcpbridge.app.demo.servers.shop_main"]}


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    camera = python_server("camera", results={"media_limit": 1000})  # a larger one is kept, and a link is sent
    with running({"servers": {"shop": SHOP, "camera": camera}}) as one:
        call_as_client(one, "shop__list_orders")
        yield one


def call_as_client(home: Home, tool: str) -> None:
    """Call a tool as an MCP client does: a large result is kept, and the client gets a preview."""
    messages = [
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": tool, "arguments": {}}},
    ]
    command = [*preloaded_bridge.command(), "serve", "--config", str(home.config)]
    with subprocess.Popen(command, env=home.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        for message in messages:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if json.loads(line).get("id") == 2:
                break
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_person_finds_a_result_sorts_and_questions_it(page: "Page") -> None:
    """Issue 20, item 5: tables sort and filter, the query language in a box, a chart of numeric columns."""
    page.get_by_role("link", name="Results").click()
    page.get_by_label(re.compile("Search in tool")).fill("list_orders 340")
    page.get_by_role("link", name="shop/list_orders").click()
    page.get_by_role("heading", name="Result of shop/list_orders").wait_for()
    page.get_by_text("340 rows").wait_for()
    page.locator("figure.chart canvas").wait_for()
    page.get_by_role("link", name="total").click()
    page.get_by_role("link", name="total").click()
    assert "sort=-total" in page.url
    page.get_by_label("where").fill('customer.country == "DE"')
    page.get_by_label("select").fill("id, total")
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("120 rows").wait_for()
    assert page.locator("thead th").all_inner_texts() == ["id", "total"]
    page.get_by_label("where").fill("nothing ==")
    page.get_by_role("button", name="Ask").click()
    assert "where" in page.get_by_role("alert").filter(has_text="where").inner_text()


DRAWN = "[...document.querySelectorAll('main img')].map(one => one.complete && one.naturalWidth)"


def test_a_person_sees_the_image_that_a_tool_answered_with(page: "Page", home: Home) -> None:
    """Issue 20, item 5: images shown; on the page of the result and on that of the call."""
    call_as_client(home, "camera__photograph")
    page.get_by_role("link", name="Results").click()
    page.get_by_role("link", name="camera/photograph").click()
    page.get_by_role("img", name="Image of the result").wait_for()
    page.wait_for_function(f"{DRAWN}.every(Boolean)")
    assert page.evaluate(DRAWN) == [160]
    page.get_by_text("the harbour").first.wait_for()
    page.get_by_role("link", name="Calls", exact=True).click()
    page.get_by_role("link", name="camera/photograph").first.click()
    page.get_by_role("img", name="Image of the result").first.wait_for()
    page.wait_for_function(f"{DRAWN}.every(Boolean)")
    assert set(page.evaluate(DRAWN)) == {160}
    page.get_by_role("link", name="Results").click()
    page.get_by_role("link", name="camera/photograph").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("link", name="shop/list_orders").wait_for()


def test_a_person_downloads_and_deletes_a_result(page: "Page", home: Home) -> None:
    page.get_by_role("link", name="Results").click()
    page.get_by_role("link", name="shop/list_orders").click()
    with page.expect_download() as download:
        page.get_by_role("link", name=re.compile("Download")).click()
    sent = json.loads(download.value.path().read_text())
    assert len(json.loads(sent["content"][0]["text"])) == 340
    page.get_by_role("button", name="Delete").click()
    page.get_by_text("No result is kept yet").wait_for()
    assert json.loads(home.run("results", "--json", "--config", str(home.config)))["results"] == []


def test_a_handle_that_is_not_there_is_said_so(home: Home) -> None:
    with httpx2.Client() as client:
        link = home.link()
        client.get(link)
        answer = client.get(link.partition("/enter")[0] + "/results/nonesuch")
    assert answer.status_code == 404
    assert "No result is kept" in answer.text


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ([{"type": "text", "text": "one\ntwo"}], "text"),
        ([{"type": "text", "text": '{"a": {"b": [1, 2]}}'}], "json"),
        ([{"type": "text", "text": "[" * 3000 + "]" * 3000}], "text"),
        ([{"type": "image", "mimeType": "image/png", "data": "aGk="}], "text"),
        ([{"type": "image", "mimeType": "image/svg+xml", "data": "PHN2Zz4="}], "text"),
        ([{"type": "image", "mimeType": "image/png", "data": 'not base64 "><script>'}], "text"),
        ("no list", "text"),
    ],
)
def test_any_result_has_a_view(content: object, kind: str) -> None:
    view = view_of(json.dumps({"content": content}).encode(), {})
    assert (view.kind, bool(view.problem)) == (kind, False)
    for picture in view.pictures:
        assert picture.address == "" or re.fullmatch(
            r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*", picture.address
        )
