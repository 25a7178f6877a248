"""The daemon's socket in the test process: what only shows when time runs out."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.app.daemon import socket_server as front
from mcpbridge.app.daemon.handshake import Hello
from mcpbridge.app.daemon.socket_server import SocketFront
from support.in_process_bridge import bridged, envelope
from support.programs.daemon_process import hello
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport

SILENT = {**LEGACY_SERVER, "tools/call": SILENCE}


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[tuple[SocketFront, ScriptedTransport]]:
    """A front on a socket of its own, before a server that answers no call."""

    async def adopt(_: Hello) -> None:
        return

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        transport = ScriptedTransport(SILENT)
        async with bridged({"up": transport}) as bridge:
            made = SocketFront(
                bridge, [listener], max_frame=1 << 20, listings=lambda: "digest", adopt=adopt, changed=lambda: None
            )
            async with made.serving():
                yield made, transport


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


async def heard(reader: asyncio.StreamReader) -> bytes:
    """All that came before the end, whichever way Linux tells of that."""
    with contextlib.suppress(ConnectionError):
        return await reader.read()
    return b""


CALL = {"name": "up__echo", "arguments": {}}


async def test_what_takes_too_long_for_the_end_is_answered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a shim would make the call again, and it may have had its effect."""
    monkeypatch.setattr(front, "FINISH_GRACE", 0.05)
    async with served(tmp_path / "s") as (made, transport):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(hello() + line(id=1, method="tools/call", params={**CALL, "_meta": envelope()}))
        listen = {"notifications": {"toolsListChanged": True}, "_meta": envelope()}
        writer.write(line(id=2, method="subscriptions/listen", params=listen))
        await transport.hears("tools/call")
        await made.finish(again=False)
        said = [json.loads(one) for one in (await reader.read()).splitlines()]
        assert said[0]["listings"] == "digest"
        assert said[-1] == {"mcpbridge": 1, "bye": True, "again": False}
        [answer] = [one for one in said if one.get("id") == 1]
        assert answer["result"]["isError"]
        assert "not known whether" in answer["result"]["content"][0]["text"]
        assert not [one for one in said if one.get("id") == 2], "a listen stream goes on elsewhere"
        assert not made.connections
        writer.close()


async def test_who_has_not_been_greeted_at_the_end_hears_nothing(tmp_path: Path) -> None:
    """So its shim knows that nothing was read."""
    async with served(tmp_path / "s") as (made, _):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(b'{"mcpbridge":1')
        while made.is_empty:
            await asyncio.sleep(0)
        await made.finish(again=True)
        assert await heard(reader) == b""
        writer.close()
        late, late_writer = await asyncio.open_unix_connection(tmp_path / "s")  # waits in the queue of the system
        late_writer.write(hello())
        assert made.is_empty
    assert await heard(late) == b""
    late_writer.close()


async def test_the_project_of_the_client_is_known_before_it_is_asked(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as (made, _):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(hello(project="/some where"))
        await reader.readline()
        [connection] = made.connections
        assert connection.client.started_in == "file:///some%20where"
        writer.close()


async def test_a_client_that_leaves_takes_its_calls_with_it(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as (made, transport):
        _, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(hello() + line(id=1, method="tools/call", params={**CALL, "_meta": envelope()}))
        await transport.hears("tools/call")
        writer.close()
        await transport.hears("notifications/cancelled")
        while not made.is_empty:
            await asyncio.sleep(0)


async def test_who_says_nothing_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "HELLO_PATIENCE", 0.02)
    async with served(tmp_path / "s"):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()
