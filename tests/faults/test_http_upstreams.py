"""Everything that can go wrong at a server reached over HTTP (issue 2, Upstreams).

The tests of single answers share one bridge and one server: what one answer spoils, the next test sees.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.harness import Place, eventually, explains, python_server, undisturbed
from support.rpc import Message, StdioClient

HEALTHY = {"healthy": python_server("plain")}


@asynccontextmanager
async def http_upstream(**settings: Any) -> AsyncIterator[dict[str, Any]]:
    """A running `servers/http_upstream.py`, as the configuration of a server."""
    script = Path(__file__).parent.parent / "servers" / "http_upstream.py"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-ES", str(script)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    try:
        url = (await process.stdout.readline()).decode().strip()
        yield {"url": url, "call_timeout": 30, **settings}
    finally:
        process.stdin.close()
        process.kill()
        await process.wait()
        process._transport.close()  # pyright: ignore  # asyncio offers no other way to close its pipes


@pytest.fixture(scope="module")
async def client(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    """A client in session with the bridge that the tests share."""
    place = Place(tmp_path_factory.mktemp("http"))
    async with http_upstream() as bad, place.bridge({"bad": bad, **HEALTHY}) as client:
        await client.initialize()
        await client.tools_with("bad__fail")
        yield client
    place.clean()


@pytest.mark.parametrize(
    ("how", "facts"),
    [
        ("status 401", ["401", "headers.Authorization"]),
        ("status 403", ["403"]),
        ("status 429", ["429", "7 s"]),
        ("status 500", ["500"]),
        ("status 503", ["503"]),
        ("gzip-bomb", ["limit"]),
        ("gzip-broken", []),
        ("malformed", ["cannot be read"]),
        ("html", []),
        ("empty", []),
        ("redirect", []),
        ("sse-cut", []),
        ("sse-malformed", ["cannot be read"]),
        ("cut", []),
        ("hang-up", []),
    ],
)
async def test_a_failed_answer_fails_its_call_at_once(client: StdioClient, how: str, facts: list[str]) -> None:
    async with undisturbed(client):
        explains(await client.call("bad__fail", how=how), "bad", *facts)
        assert (await client.call("bad__echo", text="and on")).text == "and on"


@pytest.mark.parametrize("how", ["sse-good", "sse-endless"])
async def test_an_answer_is_taken_at_once_also_when_its_stream_stays_open(client: StdioClient, how: str) -> None:
    async with undisturbed(client):
        for _ in range(3):
            assert (await client.call("bad__fail", how=how)).text == "readable"


async def test_a_gzip_bomb_is_not_unpacked(place: Place) -> None:
    async with http_upstream() as bad, place.bridge({"bad": bad}, limits={"max_frame": 4_000_000}) as client:
        await client.initialize()
        await client.tools_with("bad__fail")
        before = client.command.peak_memory()
        explains(await client.call("bad__fail", how="gzip-bomb"), "bad", "limit")
        assert client.command.peak_memory() - before < 40_000_000


async def test_a_stream_that_says_nothing_ends_at_the_deadline_of_its_call(place: Place) -> None:
    def cancels(journal: list[Message]) -> list[Any]:
        return [m["params"]["requestId"] for m in journal if m.get("method") == "notifications/cancelled"]

    async with http_upstream(call_timeout=3) as bad, place.bridge({"bad": bad, **HEALTHY}) as client:
        await client.initialize()
        await client.tools_with("bad__fail")

        async def journal() -> list[Message]:
            return json.loads((await client.call("bad__journal")).text)

        async with undisturbed(client):
            explains(await client.call("bad__fail", how="sse-silent"), "bad", "3 s")
            sent = await eventually(journal, cancels)  # each message is a request of its own: no order among them
    [call] = [m for m in sent if m.get("params", {}).get("name") == "fail"]
    assert cancels(sent) == [call["id"]]


async def test_a_session_that_the_server_forgot_is_begun_anew_and_the_call_repeated(place: Place) -> None:
    async with http_upstream() as bad, place.bridge({"bad": bad, **HEALTHY}) as client:
        await client.initialize()
        await client.tools_with("bad__forget_sessions")
        async with undisturbed(client):
            await client.call("bad__forget_sessions")
            assert (await client.call("bad__echo", text="as if nothing had been")).text == "as if nothing had been"
            journal = json.loads((await client.call("bad__journal")).text)
    assert len([m for m in journal if m.get("method") == "initialize"]) == 2


async def test_a_server_that_forgets_every_session_is_not_asked_for_ever(place: Place) -> None:
    async with http_upstream() as bad, place.bridge({"bad": bad, **HEALTHY}) as client:
        await client.initialize()
        await client.tools_with("bad__forget_sessions")
        async with undisturbed(client):
            await client.call("bad__forget_sessions", for_good=True)
            explains(await client.call("bad__echo", text="lost"), "bad")


async def test_a_server_that_nobody_runs_is_reported_as_unreachable(place: Place) -> None:
    config = place.config({"bad": {"url": "http://127.0.0.1:9/mcp"}, **HEALTHY})
    finished = await place.run("check", "--config", str(config))
    assert finished.code == 4
    [line] = [line for line in (finished.out + finished.err).splitlines() if " bad " in line]
    assert "refused" in line
    assert "127.0.0.1:9" in line
