"""The pages about calls as a person uses them, in a real browser (issue 20, item 2)."""

import csv
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.console import PATIENCE, Desk, Home, desk_of
from support.console import home as running
from support.harness import python_server

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

expect: Any = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE)

SERVERS = {name: python_server(name) for name in ("gated", "telling", "large")}


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with running({"servers": SERVERS, "code": {"enabled": True}}) as one:
        one.call("gated/echo", "text=needle")
        one.call("gated/echo", "text=straw")
        one.call("telling/fail", "how=result", "text=out of paper", code=None)
        yield one


@pytest.fixture
def desk(home: Home) -> Iterator[Desk]:
    with desk_of(home) as one:
        yield one


def open_calls(page: "Page") -> "Locator":
    """The list of calls; its rows."""
    page.get_by_role("link", name="Calls", exact=True).first.click()
    page.get_by_role("heading", name="Calls", exact=True).wait_for()
    return rows_of(page)


def rows_of(page: "Page") -> "Locator":
    return page.locator("#calls tbody tr")


def open_newest(page: "Page", text: str = "") -> None:
    """The page of the newest call with this text in its row, once that is recorded."""
    rows = open_calls(page)
    row = rows.filter(has_text=text).first if text else rows.first
    row.get_by_role("link").last.click()
    page.get_by_role("heading", name="Arguments", exact=True).wait_for()


def test_a_person_filters_calls_and_the_address_keeps_it(page: "Page") -> None:
    """Issue 20: filters (server, tool, client, principal, outcome, time, duration, text) kept in the URL."""
    rows = open_calls(page)
    expect(rows.nth(2)).to_be_visible()
    page.get_by_label("Server", exact=True).fill("gated")
    page.get_by_label("Server", exact=True).press("Enter")
    expect(rows).to_have_count(2)
    expect(page).to_have_url(re.compile(r"/console/calls\?server=gated$"))
    page.get_by_label("Text", exact=True).fill("needle")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile(r"server=gated&text=needle|text=needle&server=gated"))
    page.reload()
    expect(rows_of(page)).to_have_count(1)
    assert page.get_by_label("Text", exact=True).input_value() == "needle"
    page.get_by_role("link", name="Clear").click()
    page.get_by_label("Outcome").select_option("failures")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("telling/fail")
    expect(page).to_have_url(re.compile("outcome=failures"))
    page.get_by_label("Outcome").select_option("")
    page.get_by_label("Took at most").fill("1h")
    page.get_by_label("Took at most").press("Enter")
    expect(rows.nth(2)).to_be_visible()
    page.get_by_label("Since").fill("not a time")
    page.get_by_label("Since").press("Enter")
    page.get_by_role("alert").get_by_text("It filters nothing").wait_for()
    page.go_back()
    page.get_by_role("heading", name="Calls", exact=True).wait_for()


def test_a_person_exports_what_is_filtered(page: "Page") -> None:
    """Issue 20: export as JSON and CSV."""
    page.goto(page.url.rstrip("/") + "/calls?server=gated&text=needle")
    expect(rows_of(page)).to_have_count(1)
    with page.expect_download() as found:
        page.get_by_role("link", name="CSV").click()
    (line,) = csv.DictReader(Path(found.value.path()).read_text().splitlines())
    assert (line["tool"], json.loads(line["arguments"])) == ("gated/echo", {"text": "needle"})
    with page.expect_download() as found:
        page.get_by_role("link", name="JSON").click()
    (row,) = json.loads(Path(found.value.path()).read_text())
    assert row["tool"] == "gated/echo"
    assert found.value.suggested_filename.endswith(".json")


def test_a_call_shows_what_was_sent_what_was_mended_and_where_the_time_went(page: "Page", home: Home) -> None:
    """Issue 20: arguments as sent and as mended, a waterfall of its stages, tokens."""
    home.run("call", "--config", str(home.config), "--args", '{"text": 3}', "gated/echo")
    open_newest(page, "arguments mended")
    expect(page.get_by_label("Arguments as the client sent them")).to_contain_text('"text": 3')
    expect(page.get_by_label("Arguments as the server got them")).to_contain_text('"text": "3"')
    stages = page.get_by_role("region", name="Stages")
    expect(stages.get_by_role("rowheader", name="server", exact=False).first).to_be_visible()
    boxes = [box.bounding_box() for box in stages.locator("td.bar svg").all()]
    assert len(boxes) >= 2
    assert all(box is not None and box["width"] > 100 for box in boxes)
    expect(page.get_by_text("tokens (estimated)").first).to_be_visible()
    page.get_by_text("Nothing was logged", exact=False).or_(page.locator("table.log")).first.wait_for()
    page.get_by_text("Copy as CLI, Python, curl, cassette").click()
    expect(page.get_by_role("group", name="CLI", exact=True)).to_contain_text("mcpbridge call")
    with page.expect_download() as found:
        page.get_by_role("link", name="Download a cassette of this call").click()
    assert '"gated"' in Path(found.value.path()).read_text()


def test_what_the_model_saw_stands_beside_what_the_server_sent(page: "Page", desk: Desk) -> None:
    """Issue 20: the result as the model saw it beside the original, tokens of both."""
    desk.call("large__large", size=60_000, steps=0)
    desk.text()
    open_newest(page, "large/large")
    seen = page.get_by_role("heading", name="As the model saw it")
    sent = page.get_by_role("heading", name="As the server sent it")
    fewer, more = (int(re.sub(r"\D", "", one.inner_text())) for one in (seen, sent))
    assert 0 < fewer < more
    left, right = seen.bounding_box(), sent.bounding_box()
    assert left is not None
    assert right is not None
    assert abs(left["y"] - right["y"]) < 5, "they stand side by side"
    page.get_by_role("link", name="Open it: as a table or tree").click()
    page.get_by_role("heading", level=1).wait_for()
    assert "/console/results/" in page.url


def test_a_person_calls_again_and_edits_and_calls(page: "Page", home: Home) -> None:
    """Issue 20: call again, edit and call. What may change something is asked about first."""
    home.call("gated/echo", "text=again")
    open_newest(page, "gated/echo")
    questions: list[str] = []
    page.on("dialog", lambda dialog: (questions.append(dialog.message), dialog.accept()))
    page.get_by_role("button", name="Call again").click()
    made = page.locator("#made")
    expect(made).to_contain_text("The call is done.")
    expect(made).to_contain_text("again")
    page.get_by_text("Edit and call", exact=True).click()
    page.get_by_label("Arguments, a JSON object").fill('{"text": "edited"}')
    page.get_by_role("button", name="Call", exact=True).click()
    expect(made).to_contain_text("edited")
    assert questions == ["This tool may change something. Call it again?", "This tool may change something. Call it?"]
    page.get_by_label("Arguments, a JSON object").fill("{")
    page.get_by_role("button", name="Call", exact=True).click()
    expect(made).to_contain_text("no JSON")
    open_newest(page, "console")
    expect(page.get_by_role("group", name="Arguments")).to_contain_text("edited")


def test_a_person_cancels_a_call_that_runs(page: "Page", home: Home, desk: Desk) -> None:
    """Issue 20: running calls stand on top with Cancel."""
    open_calls(page)
    gate = home.folder / "gate"
    os.mkfifo(gate)
    desk.call("gated__pass_gate", gate=str(gate))
    running_calls = page.locator("section#running")
    row = running_calls.get_by_role("row").filter(has_text="gated/pass_gate")
    row.wait_for()
    expect(row).to_contain_text("desk")
    above = running_calls.bounding_box()
    below = page.locator("#calls").bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] < below["y"]
    row.get_by_role("link", name="gated/pass_gate").click()
    page.get_by_role("heading", name="gated/pass_gate running").wait_for()
    page.get_by_role("link", name="Calls", exact=True).first.click()
    running_calls.get_by_role("button", name="Cancel the call of gated/pass_gate").click()
    page.get_by_text("The call is cancelled; its server was asked to stop.").wait_for()
    assert "a person cancelled this call" in desk.answer()["content"][0]["text"]
    row.wait_for(state="detached")
    descriptor = os.open(gate, os.O_RDWR | os.O_NONBLOCK)  # its thread ends
    os.close(descriptor)
    open_newest(page, "gated/pass_gate")
    expect(page.locator("#help")).to_contain_text("Check whether the action took effect before you repeat it.")


def test_the_page_of_a_running_call_shows_its_end_by_itself(page: "Page", home: Home, desk: Desk) -> None:
    open_calls(page)
    gate = home.folder / "second-gate"
    os.mkfifo(gate)
    desk.call("gated__pass_gate", gate=str(gate))
    page.locator("section#running").get_by_role("link", name="gated/pass_gate").click()
    page.get_by_role("heading", name="gated/pass_gate running").wait_for()
    with gate.open("w"):
        pass
    assert desk.text() == "passed"
    page.get_by_role("heading", name="gated/pass_gate ok").wait_for()
    expect(page.get_by_role("group", name="Text 1")).to_contain_text("passed")


def test_failures_say_what_to_do_and_show_what_the_server_wrote(page: "Page", home: Home, desk: Desk) -> None:
    """Issue 20: failures and refusals are there too, with the fix; log lines and stderr of that time."""
    home.call("telling/fail", "how=exit", "text=out of ink", code=None)
    open_newest(page, "UpstreamGone")
    banner = page.locator("#help")
    expect(banner).to_contain_text("The connection ended during the call")
    expect(banner).to_contain_text("Check whether the action took effect before you repeat it.")
    banner.get_by_role("link", name="Log of that time").click()
    expect(page.get_by_role("group", name="Standard error")).to_contain_text("out of ink")
    desk.call("large__large", size="as much as there is")
    assert desk.answer()["isError"]
    open_newest(page, "ArgumentsRefused")
    expect(page.locator("#help")).to_contain_text("do not fit the tool's schema")
    page.locator("#help").get_by_role("link", name="Edit and call").click()
    assert page.url.endswith("#again")


def test_nested_calls_are_a_tree(page: "Page", desk: Desk) -> None:
    """Issue 20: nested calls (code mode, agents, hooks) as a tree."""
    desk.call("run_code", code='await gated__echo(text="one")\nawait gated__echo(text="two")')
    desk.text()
    open_newest(page, "run_code")
    tree = page.locator("ul.tree")
    expect(tree.get_by_role("link", name="gated/echo")).to_have_count(2)
    tree.get_by_role("link", name="gated/echo").last.click()
    page.get_by_role("heading", name="gated/echo ok").wait_for()
    page.locator(".crumbs").get_by_role("link", name=re.compile("run_code")).click()
    page.get_by_role("heading", name="Calls that it made").wait_for()


def test_a_session_has_a_page_and_the_timeline_its_events(page: "Page", home: Home) -> None:
    """Issue 20: a page per client session (client, revision, list, calls, why it ended) and a timeline of events."""
    with desk_of(home) as desk:
        desk.ask("tools/list")
        count = len(desk.answer()["tools"])
        desk.call("gated__echo", text="of this session")
        desk.text()
        open_calls(page)
        page.get_by_role("link", name="Sessions of clients").click()
        page.get_by_role("row").filter(has_text="desk").first.get_by_role("link").click()
        page.get_by_role("heading", name="Session of desk open").wait_for()
        main = page.get_by_role("main")
        expect(main).to_contain_text("2025-06-18")
        expect(main).to_contain_text(re.compile(rf"Tools that it was listed\s*{count}"))
        expect(page.get_by_role("region", name="Calls of the session")).to_contain_text("gated/echo")
    page.get_by_role("heading", name="Session of desk", exact=True).wait_for()  # it shows the end by itself
    expect(main).to_contain_text(re.compile(r"Why it ended\s*[^\s–]"))
    page.goto(page.url.partition("/sessions")[0] + "/timeline")
    events = page.get_by_role("region", name="Events, newest first")
    expect(events.get_by_text("server ready").first).to_be_visible()
    expect(events.get_by_text("client left").first).to_be_visible()
    page.get_by_label(re.compile("^What")).select_option("clients")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile("kind=clients"))
    expect(events.get_by_text("client connected").first).to_be_visible()
    expect(events.get_by_text("server ready")).to_have_count(0)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_calls_fit_and_have_nothing_to_mend(page: "Page", scheme: Any, width: int) -> None:
    """Issue 20: light and dark, 390 px, axe-core; the pages of calls of all sorts."""
    from axe_playwright_python.sync_playwright import Axe

    start = page.url.rstrip("/")
    context = page.context.browser.new_context(  # type: ignore[union-attr]
        color_scheme=scheme,
        viewport={"width": width, "height": 800},
        bypass_csp=True,
        storage_state=page.context.storage_state(),
    )
    other = context.new_page()
    other.goto(f"{start}/calls")
    links: list[str] = other.evaluate("[...document.querySelectorAll('#calls td.name a[id]')].map(one => one.href)")
    found: dict[str, list[str]] = {}
    for address in (f"{start}/calls", f"{start}/sessions", f"{start}/timeline", *links[:8]):
        other.goto(address)
        other.locator("h1").wait_for()
        other.get_by_role("link", name="Show what was logged").wait_for(state="detached")
        assert other.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), address
        bad = Axe().run(other).response["violations"]
        if bad:
            found[address] = [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in bad]
    context.close()
    assert found == {}
