"""What holds of every page: nothing that a server says runs or moves anything, and axe-core finds nothing to mend."""

import json
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from mcpbridge.app.console.shown_text import inert_text, pretty_json
from mcpbridge.base.directories import daemon_key
from support.console import PATIENCE, Home
from support.console import home as running
from support.harness import python_server
from support.hostile_texts import HOSTILE, MARK, SHORT, UNSEEN
from support.programs.daemon_process import hello

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

TOOLS = (len(HOSTILE) + 9) // 10
PAGES = (
    *("", "calls", "sessions", "timeline", "catalog", "approvals", "results"),
    *("servers", "servers/markup", "configuration/new", "configuration/file"),
    *("usage", "usage?by=user&by=tool&since=24h&price=3", "savings", "settings", "settings?only=all", "nonesuch"),
)


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with running({"servers": {"markup": python_server("markup")}}) as one:
        for at in range(0, TOOLS, 4):
            one.call(f"markup/t{at}", "say=<script>window.pwned=1</script>", code=None)
        with connected(one, CLIENTS):
            yield one


CLIENTS = [SHORT[at : at + 3] for at in range(0, len(SHORT), 3)]
"""Name, title and version that a client declares."""


@contextmanager
def connected(home: Home, declared: Sequence[Sequence[str]]) -> Iterator[None]:
    """Clients that are there for the time of the block and have made a call each, on the socket of the daemon."""
    path = home.folder / "run" / "mcpbridge" / f"daemon-{daemon_key(home.config)}.sock"
    with ExitStack() as open_ones:
        for texts in declared:
            info = dict(zip(("name", "title", "version"), texts, strict=False))
            start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"version": "1", **info}}
            messages = [
                {"id": 1, "method": "initialize", "params": start},
                {"method": "notifications/initialized"},
                {"id": 2, "method": "tools/call", "params": {"name": "markup__t0", "arguments": {"say": "hello"}}},
            ]
            client = open_ones.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(PATIENCE / 1000)
            client.connect(str(path))
            client.sendall(
                hello() + b"".join(json.dumps({"jsonrpc": "2.0", **one}).encode() + b"\n" for one in messages)
            )
            answers = map(json.loads, open_ones.enter_context(client.makefile("rb")))
            assert "result" in next(answer for answer in answers if answer.get("id") == 2)
        yield


def test_there_are_enough_hostile_texts() -> None:
    """Issue 20 asks for 200."""
    assert len(HOSTILE) >= 200


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_text_is_shown_without_what_hides(text: str) -> None:
    told = inert_text(text)
    assert len(told) < 21_000 * 10
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", told)
    told.encode()


@pytest.mark.parametrize("text", UNSEEN, ids=range(len(UNSEEN)))
def test_what_is_shown_in_a_form_is_sent_back_unchanged(text: str) -> None:
    assert json.loads(pretty_json({"text": text})) == {"text": text}


HANDLERS = "[...document.querySelectorAll('main *')].some(one => [...one.attributes].some(its => /^on/.test(its.name)))"
WEB_LINKS = "[...document.querySelectorAll('a[href]')].every(one => /^https?:/.test(one.href))"


def visit(page: "Page", start: str, path: str) -> None:
    """Open a page and wait until it is there whole."""
    page.goto(f"{start}/{path}")
    page.locator("h1").wait_for()
    page.wait_for_load_state("load")


def test_no_text_of_a_server_runs_or_leaves_the_page(browser: "Browser", home: Home) -> None:
    """Issue 20: 200 hostile strings through every place where upstream text is shown."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    page.on("console", lambda told: problems.append(told.text) if "Content Security" in told.text else None)
    page.on("request", lambda asked: problems.append(asked.url) if "127.0.0.1" not in asked.url[:30] else None)
    link = home.link()
    page.goto(link)
    start = link.partition("/enter")[0]
    for path in (*PAGES, *_found(page, start)):
        visit(page, start, path)
        assert page.evaluate(f"window.{MARK} === undefined"), path
        assert page.locator("main script, main iframe, main style, main base, main object").count() == 0, path
        assert not page.evaluate(HANDLERS), path
        assert page.evaluate(WEB_LINKS), path
        text = page.locator("main").inner_text()
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b-\u200f\x1b]", text), path
    context.close()
    assert problems == []


def _found(page: "Page", start: str) -> list[str]:
    """Pages of single calls, tools and results that the lists lead to; a few of each."""
    found: list[str] = []
    for path in ("calls", "sessions", "catalog", "results"):
        visit(page, start, path)
        links: list[str] = page.evaluate("[...document.querySelectorAll('main a[href]')].map(a => a.href)")
        inside = [link.removeprefix(f"{start}/") for link in links if link.startswith(f"{start}/{path}/")]
        found += [link for link in dict.fromkeys(inside) if "export" not in link and "raw" not in link][:8]
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_mend(browser: "Browser", home: Home, scheme: Any) -> None:
    """Issue 20: axe-core finds no violation on any page."""
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(color_scheme=scheme, bypass_csp=True)  # axe is put into the page as a script
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    link = home.link()
    page.goto(link)
    start = link.partition("/enter")[0]
    violations: dict[str, list[str]] = {}
    axe = Axe()
    for path in (*PAGES, *_found(page, start)[:6]):
        visit(page, start, path)
        found = axe.run(page).response["violations"]
        if found:
            violations[path] = [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]
    context.close()
    assert violations == {}


@pytest.fixture(scope="module")
def narrow(browser: "Browser", home: Home) -> "Iterator[tuple[BrowserContext, str]]":
    """A narrow browser that is signed in, and where the console is: what a page looks like depends on no other page."""
    context = browser.new_context(viewport={"width": 390, "height": 800})
    context.set_default_timeout(PATIENCE)
    link = home.link()
    with context.new_page() as page:
        page.goto(link)
    yield context, link.partition("/enter")[0]
    context.close()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_a_narrow_screen(narrow: "tuple[BrowserContext, str]", path: str) -> None:
    """Issue 20: usable at 390 px; only what is marked so scrolls sideways."""
    context, start = narrow
    with context.new_page() as page:
        visit(page, start, path)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
