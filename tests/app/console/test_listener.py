"""The port of the console: there for as long as a page is open, and a while longer."""

import time
from pathlib import Path

import httpx2
import pytest

from mcpbridge.app.console import listener
from mcpbridge.app.console.listener import ConsolePort
from support.console_app import visiting
from support.harness import eventually


async def test_the_port_is_open_for_as_long_as_a_page_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 20: a random loopback port for as long as a page is open; an open page counts as a client."""
    monkeypatch.setattr(listener, "_LOOK_EVERY", 0.05)
    file, pages = tmp_path / "console.json", list[bool]()

    async def look() -> tuple[bool, list[bool]]:
        return port.is_open, pages

    async with visiting({}, tmp_path) as one:
        port = ConsolePort(one.console, "console", file, changed=lambda: pages.append(port.has_pages))
        async with port.running(), httpx2.AsyncClient(timeout=60) as client:
            assert not port.is_open
            link = await port.link()
            assert link.startswith("http://127.0.0.1:")
            assert file.stat().st_mode & 0o777 == 0o600
            assert (await client.get(link)).status_code == 303
            start = link.partition("/enter")[0]
            async with client.stream("GET", f"{start}/events") as stream:
                events = stream.aiter_bytes()
                await anext(events)
                await eventually(look, lambda seen: seen[1] == [True])
                monkeypatch.setattr(listener, "CLOSE_AFTER", 0.2)
                began = time.monotonic()
                await eventually(look, lambda _: time.monotonic() - began > 1)
                assert port.has_pages
            await eventually(look, lambda seen: not seen[0], within=60)
            assert pages == [True, False]
            assert not file.exists()
            with pytest.raises(httpx2.ConnectError):
                await client.get(f"{start}/enter")
            assert (await port.link()).startswith("http://127.0.0.1:"), "it is opened again"


async def test_who_came_by_a_token_is_not_signed_in_at_the_next_daemon(tmp_path: Path) -> None:
    """Issue 23: a token that was taken out of the configuration meanwhile opens no console."""
    file = tmp_path / "console.json"
    async with visiting({}, tmp_path) as one:
        holder = one.console.sign_ins.open("admin", "alice")
        port = ConsolePort(one.console, "console", file)
        async with port.running(), httpx2.AsyncClient(timeout=60) as client:
            link = await port.link()
            entered = await client.get(link)
            [local] = client.cookies.values()
            assert entered.status_code == 303
            await port.link()  # writes down who is signed in
            kept = file.read_text()
    async with visiting({}, tmp_path) as later:
        file.write_text(kept)
        async with ConsolePort(later.console, "console", file).running():
            assert later.console.sign_ins.visit(local) is not None
            assert later.console.sign_ins.visit(holder) is None
