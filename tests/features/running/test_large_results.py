"""Results of tens of megabytes cross the bridge byte by byte, and what is hidden in them counts (issue 18)."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

from anyio import fail_after
from tests.support.harness import python_server

from mcpbridge.config.schema import Settings
from mcpbridge.downstream.stdio import serve_stdio
from mcpbridge.library.bridge import Bridge

SERVER = "large_results"


class PipeClient:
    """A client on pipes; answers are bytes."""

    def __init__(self, write: int, read: asyncio.StreamReader) -> None:
        self._write, self._read, self._last = write, read, 0

    async def result(self, method: str, params: dict[str, Any]) -> bytes:
        """The bytes of the result."""
        self._last += 1
        line = json.dumps({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        os.write(self._write, line.encode() + b"\n")
        begin = b'{"jsonrpc":"2.0","id":%d,"result":' % self._last
        while not (answer := (await self._read.readuntil(b"\n"))[:-1]).startswith(begin):
            pass
        return answer[len(begin) : -1]

    async def call(self, name: str, **arguments: object) -> bytes:
        """Of a tool."""
        return await self.result("tools/call", {"name": name, "arguments": arguments})


@asynccontextmanager
async def client_of(**sections: Any) -> AsyncIterator[PipeClient]:
    settings = Settings.model_validate({"servers": {"big": python_server(SERVER)}, **sections})
    into_read, into_write = os.pipe()
    out_read, out_write = os.pipe()
    async with Bridge(settings) as bridge:
        assert await bridge.settled(60)
        serving = asyncio.create_task(serve_stdio(bridge.server, in_fd=into_read, out_fd=out_write))
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=1 << 27)
        pipe = os.fdopen(out_read, "rb", 0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            client = PipeClient(into_write, reader)
            info = {"name": "test", "version": "1"}
            await client.result("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
            yield client
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            transport.close()
            for descriptor in (into_read, into_write, out_write):
                os.close(descriptor)


async def test_a_result_of_30_mb_crosses_byte_by_byte() -> None:
    with fail_after(240):
        async with client_of(results={"strategy": "off"}) as client:
            whole = await client.call("big__rows")
            assert len(whole) > 29_000_000
            expected = json.loads(await client.call("big__rows", digest=True))["digest"]
            assert sha256(whole).hexdigest() == expected


async def test_what_is_wrong_late_in_a_large_answer_fails_its_call_alone() -> None:
    with fail_after(240):
        async with client_of(results={"strategy": "off"}) as client:
            broken = json.loads(await client.call("big__broken"))
            assert broken["isError"]
            assert "cannot be read" in broken["content"][0]["text"]
            repaired = await client.call("big__wrong_bytes")
            assert repaired.endswith('"�"]}'.encode())
            assert json.loads(await client.call("big__small"))["content"][0]["text"] == "ok"


async def test_a_failure_in_the_middle_of_a_large_result_counts_as_one() -> None:
    with fail_after(240):
        async with client_of(results={"strategy": "off"}) as client:
            failed = json.loads(await client.call("big__failure"))
            assert failed["isError"] is True
            assert "The call failed with" in failed["content"][0]["text"]


async def test_a_large_result_is_shown_in_short_and_kept_whole() -> None:
    with fail_after(240):
        async with client_of() as client:
            shown = json.loads(await client.call("big__text"))
            assert len(json.dumps(shown)) < 20_000
            facts = shown["_meta"]["mcpbridge/result"]
            assert facts["chars"] > 15_000_000
            kept = await client.result("resources/read", {"uri": facts["uri"]})
            assert len(kept) > 15_000_000
