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
