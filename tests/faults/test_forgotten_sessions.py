"""A server over HTTP that forgets its session while many calls are under way (spec, streamable HTTP: 404)."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.harness import Place, python_server, undisturbed

SCRIPT = Path(__file__).parent.parent / "servers" / "http_upstream.py"


@asynccontextmanager
async def http_upstream() -> AsyncIterator[str]:
    """The URL of a running `servers/http_upstream.py`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-ES", str(SCRIPT)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        process.kill()
        await process.wait()
        process._transport.close()  # pyright: ignore  # asyncio offers no other way to close its pipes


async def test_all_calls_that_find_the_session_forgotten_are_answered(place: Place) -> None:
    async with http_upstream() as url:
        servers = {"far": {"url": url, "call_timeout": 30}, "healthy": python_server("plain")}
        async with place.bridge(servers) as client:
            await client.initialize()
            await client.tools_with("far__forget_sessions")
            for number in range(3):
                async with undisturbed(client):
                    await client.call("far__forget_sessions")
                    words = [f"{number}/{n}" for n in range(5)]
                    replies = await asyncio.gather(*(client.call("far__echo", text=word) for word in words))
                    assert [reply.text for reply in replies] == words
            journal = json.loads((await client.call("far__journal")).text)
    assert len([m for m in journal if m.get("method") == "initialize"]) == 4, "one new session each time, not five"
