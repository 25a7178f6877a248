"""The page of one server while things happen to it, and servers out of clients' files (issue 20, item 6)."""

import json
import os
import re
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.console import PATIENCE, Home
from support.console import home as running
from support.harness import python_server

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect: Any = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE)

PLAIN = python_server("plain")
SAYS = ["-c", ': >>lines; tail --pid=$$ -n 0 -f lines >&2 & exec "$@"', "sh", PLAIN["command"], *PLAIN["args"]]
"""A shell that runs the server, and writes to standard error whatever is put into a file `lines`."""


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with running({"servers": {"plain": {"command": "/bin/sh", "args": SAYS, "start": "eager"}}}) as one:
        yield one


def open_server(page: "Page", name: str = "plain") -> Any:
    """The page of a server; what is said of its state."""
    page.get_by_role("link", name="Servers", exact=True).first.click()
    page.get_by_role("link", name=name, exact=True).click()
    page.get_by_role("heading", name=name, exact=True).wait_for()
    return page.locator("#state")


def write(home: Home, text: str) -> None:
    """Have the server write this to standard error."""
    with home.folder.joinpath("lines").open("a") as file:
        file.write(text)


def test_what_a_server_writes_is_seen_as_it_comes(page: "Page", home: Home) -> None:
    """Issue 20: logs tail; lines with ANSI, bidi and 10 MB render inert and visible for what they are."""
    expect(open_server(page)).to_contain_text("ready")
    expect(page.get_by_role("group", name="What it declared")).to_contain_text('"tools"')
    expect(page.get_by_role("region", name="Settings").get_by_role("row", name="args")).to_contain_text("tail --pid")
    page.get_by_text("It has written nothing yet").wait_for()
    lines = page.get_by_role("group", name="Standard error")
    write(home, "hello there\n")
    expect(lines).to_contain_text("hello there")
    write(home, "\x1b[31mred\x1b[0m \u202egnp.exe <img src=x onerror=alert(1)>\n")
    expect(lines).to_contain_text("⟦ESC⟧[31mred")
    expect(lines).to_contain_text("⟦U+202E⟧gnp.exe <img src=x onerror=alert(1)>")
    write(home, f"{'long ' * 2_000_000}\nafter it\n")
    expect(lines).to_contain_text("after it")
    expect(lines).to_contain_text("… (the line is longer)")
    assert len(lines.inner_text()) < 10_000
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    write(home, "".join(f"line {number}\n" for number in range(100)))
    expect(lines).to_contain_text("line 99")
    lines.evaluate("one => { one.scrollTop = one.scrollHeight; one.focus(); }")
    write(home, "the newest\n")
    expect(lines).to_contain_text("the newest")
    expect(lines).to_be_focused()
    assert lines.evaluate("one => one.scrollTop + one.clientHeight >= one.scrollHeight - 2"), "it follows its end"


def test_a_server_that_dies_and_comes_back_is_seen_without_a_reload(page: "Page", home: Home) -> None:
    """Issue 20: health history."""
    state = open_server(page)
    expect(state).to_contain_text("ready")
    page.evaluate("window.before = true")
    process = state.locator("div").filter(has_text=re.compile("^Process")).locator("dd")
    first = int(process.inner_text())
    write(home, "the disk is full\n")
    expect(page.get_by_role("group", name="Standard error")).to_contain_text("the disk is full")
    os.kill(first, signal.SIGKILL)
    history = page.get_by_role("region", name="What happened, newest first")
    died = history.get_by_role("row").filter(has_text="the disk is full").first
    expect(died).to_contain_text("SIGKILL")
    expect(process).not_to_have_text(str(first))
    expect(process).to_have_text(re.compile(r"^\d+$"))
    expect(state).to_contain_text("ready")
    expect(history.get_by_role("row").nth(1)).to_contain_text("server ready")
    expect(state.locator("div").filter(has_text=re.compile("^Restarts")).locator("dd")).to_have_text("1")
    assert page.evaluate("window.before"), "the page was not loaded again"


def test_a_person_takes_over_a_server_from_a_client(page: "Page", home: Home) -> None:
    """Issue 20: add from a client's config, with the change shown before it is written; a broken file is named."""
    before = home.config.read_text()
    server = {"command": sys.executable, "args": PLAIN["args"], "env": {"API_TOKEN": "sk-hidden-0123456789abcdef"}}
    cursor = home.folder / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text(json.dumps({"mcpServers": {"notes": server, "odd": {"type": "carrier-pigeon"}}}))
    claude = home.folder / ".claude.json"
    claude.write_text('{"mcpServers": {\n  "broken": }}')
    gemini = home.folder / ".gemini" / "settings.json"
    gemini.parent.mkdir()
    gemini.write_text(json.dumps({"mcpServers": {"notes": {"command": "another-program"}}}))
    page.get_by_role("link", name="Servers").first.click()
    page.get_by_role("button", name="Add a server").click()
    broken = page.locator(".banner.bad").filter(has_text=str(claude))
    expect(broken).to_contain_text("line 2")
    found = page.get_by_role("region", name="Servers that your clients have")
    expect(found.get_by_role("row").filter(has_text="odd")).to_contain_text("cannot be taken over")
    assert "sk-hidden" not in page.content()
    page.get_by_role("button", name="Take over notes from Gemini CLI").click()
    change = page.get_by_role("group", name="The change as a diff")
    expect(change).to_contain_text("another-program")
    page.go_back()
    page.get_by_role("button", name="Take over notes from Cursor").click()
    page.get_by_role("heading", name="Notes is taken over from a client").wait_for()
    expect(change).to_contain_text("+[servers.notes]")
    secret = home.folder / "secrets" / "API_TOKEN"
    expect(page.get_by_role("main")).to_contain_text(str(secret))
    assert "sk-hidden" not in page.content()
    assert home.config.read_text() == before
    assert not secret.exists()
    page.reload()  # it is a page of its own, and no form is sent again
    page.get_by_role("button", name="Write it").click()
    page.get_by_text("The bridge has taken it in").wait_for()
    assert secret.read_text() == "sk-hidden-0123456789abcdef\n"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert "sk-hidden" not in home.config.read_text()
    page.reload()
    page.get_by_role("button", name="To the servers").click()
    expect(open_server(page, "notes")).to_contain_text("ready")
    page.get_by_role("link", name="Servers", exact=True).first.click()
    page.get_by_role("button", name="Add a server").click()
    expect(found.get_by_role("row").filter(has_text="notes")).to_have_count(0)


def test_a_server_that_was_taken_out_of_the_clients_file_meanwhile(page: "Page", home: Home) -> None:
    windsurf = home.folder / ".codeium" / "windsurf" / "mcp_config.json"
    windsurf.parent.mkdir(parents=True)
    windsurf.write_text(json.dumps({"mcpServers": {"soon-gone": {"command": "a-program"}}}))
    page.goto(f"{page.url.rstrip('/')}/configuration/new")
    windsurf.write_text("{}")
    page.get_by_role("button", name="Take over soon-gone").click()
    page.get_by_text("has no server called 'soon-gone' any more").wait_for()
    assert "soon-gone" not in Path(home.config).read_text()
