"""Failed calls that are tried again, and servers that are left alone (issue 4, Retry and Circuit breaker)."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.base.errors import UpstreamHttpError, UpstreamUnavailable
from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from support.harness import Place, python_server
from support.in_process_bridge import Ear, bridged
from support.rpc import Message, Reply, StdioClient
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport

RETRY = {"tries": 3, "backoff": 0.05}
RETRY_AFTER = "mcpbridge/retryAfter"


def flaky(**settings: Any) -> Message:
    return python_server("flaky", **{"trusted": True, "retry": RETRY, **settings})


# -- with servers that end in the middle of a call

SERVERS = {
    "reads": flaky(),
    "changes": flaky(),
    "sure": flaky(tool={"change": {"idempotent": True}}),
    "strange": flaky(trusted=False),
    "down": flaky(),
    "once": flaky(retry=1),
}
"""One for each test, since a server that ends often is started more and more rarely."""


@pytest.fixture(scope="module")
async def client(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    """A client in session with the bridge that these tests share."""
    place = Place(tmp_path_factory.mktemp("retries"))
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        for server in SERVERS:
            await client.tools_with(f"{server}__look")
        yield client
    place.clean()


async def crashing(client: StdioClient, tool: str, file: Path, crashes: int = 1) -> tuple[Reply, int]:
    """Call a tool whose server ends so many times in the middle of it; how often it was called there."""
    reply = await client.call(tool, within=30, file=str(file), crashes=crashes)
    return reply, len(file.read_text().split())


async def test_a_read_is_tried_again_when_the_server_ends_during_it(client: StdioClient, tmp_path: Path) -> None:
    reply, calls = await crashing(client, "reads__look", tmp_path / "calls")
    assert (reply.text, calls) == ("call 2", 2)


async def test_a_change_is_not_tried_again_once_it_was_sent(client: StdioClient, tmp_path: Path) -> None:
    reply, calls = await crashing(client, "changes__change", tmp_path / "calls")
    assert reply.failed
    assert calls == 1
    assert "Check whether the action took effect" in reply.text
    assert "tried" not in reply.text


async def test_a_tool_that_is_said_to_be_idempotent_is_tried_again(client: StdioClient, tmp_path: Path) -> None:
    reply, _ = await crashing(client, "sure__change", tmp_path / "calls")
    assert reply.text == "call 2"


async def test_the_word_of_a_server_that_is_not_trusted_does_not_count(client: StdioClient, tmp_path: Path) -> None:
    reply, calls = await crashing(client, "strange__look", tmp_path / "calls")
    assert (reply.failed, calls) == (True, 1)


async def test_the_error_says_how_often_a_call_was_tried(client: StdioClient, tmp_path: Path) -> None:
    reply, calls = await crashing(client, "down__look", tmp_path / "calls", crashes=99)
    assert (reply.failed, calls) == (True, 3)
    assert "(tried 3 times)" in reply.text


async def test_without_retry_nothing_is_tried_again(client: StdioClient, tmp_path: Path) -> None:
    reply, calls = await crashing(client, "once__look", tmp_path / "calls")
    assert (reply.failed, calls) == (True, 1)


# -- with a server that turns calls away


def failing(times: int, status: int, retry_after: float | None) -> Any:
    """The answer to calls: so many times this status, then a result."""
    left = [UpstreamHttpError("up", status, f"HTTP {status}", retry_after=retry_after) for _ in range(times)]
    return lambda params: left.pop() if left else LEGACY_SERVER["tools/call"]


@pytest.mark.parametrize(
    ("status", "retry_after", "is_again"),
    [(503, 0.05, True), (429, 0.05, True), (503, None, False), (500, None, False), (503, 60.0, False)],
    ids=["503, soon", "429, soon", "503, unknown when", "500", "503, too late"],
)
async def test_a_change_that_was_turned_away_is_tried_again_when_the_server_says_so(
    status: int, retry_after: float | None, is_again: bool
) -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": failing(1, status, retry_after)})
    settings = {"up": {"retry": RETRY, "call_timeout": 5}}
    async with bridged({"up": transport}, servers=settings) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        result = (await ear.ask("tools/call", {"name": "up__echo", "arguments": {}}))["result"]
        assert bool(result.get("isError")) != is_again
        assert len(transport.asked("tools/call")) == 1 + is_again


async def test_a_change_that_was_never_sent_is_tried_again() -> None:
    errors = [UpstreamUnavailable("up", "connection refused"), UpstreamUnavailable("up", "connection refused")]
    transport = ScriptedTransport(LEGACY_SERVER, **{"send tools/call": lambda: errors.pop() if errors else None})
    async with bridged({"up": transport}, servers={"up": {"retry": RETRY}}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        result = (await ear.ask("tools/call", {"name": "up__echo", "arguments": {}}))["result"]
        assert "isError" not in result
        assert len(transport.asked("tools/call")) == 1


async def test_what_the_tool_itself_calls_a_failure_is_not_tried_again() -> None:
    failed = {"content": [{"type": "text", "text": "no such city"}], "isError": True}
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": failed})
    settings = {"up": {"retry": RETRY, "idempotent": True}}
    async with bridged({"up": transport}, servers=settings) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        result = (await ear.ask("tools/call", {"name": "up__echo", "arguments": {}}))["result"]
        assert result == failed
        assert len(transport.asked("tools/call")) == 1


# -- the breaker


@asynccontextmanager
async def http_bridge(**settings: Any) -> AsyncIterator[Bridge]:
    """A bridge in front of `servers/http_upstream.py`, a process of its own."""
    script = Path(__file__).parents[2] / "servers" / "http_upstream.py"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-ES", str(script)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    try:
        url = (await process.stdout.readline()).decode().strip()
        async with (
            asyncio.timeout(60),
            Bridge(Settings.model_validate({"servers": {"up": {"url": url, **settings}}})) as bridge,
        ):
            assert await bridge.settled(10)
            yield bridge
    finally:
        process.stdin.close()
        process.kill()
        await process.wait()
        process._transport.close()  # pyright: ignore  # asyncio offers no other way to close its pipes


async def test_a_server_that_fails_all_calls_is_left_alone_and_tried_by_one_call_later() -> None:
    async with http_bridge(breaker={"failures": 3, "open": 20}) as bridge:

        async def call(tool: str, **arguments: Any) -> Message:
            return await bridge.request("tools/call", {"name": f"up__{tool}", "arguments": arguments})

        def state() -> str:
            return bridge.status()["servers"][0]["breaker"]

        def time_passes() -> None:
            bridge.pool.upstreams["up"].requests.breaker._open_until = 0.0

        assert state() == "closed"
        for _ in range(3):
            assert "HTTP 500" in (await call("fail", how="status 500"))["content"][0]["text"]
        assert state() == "open"
        refused = await call("echo", text="too early")
        wait = refused["_meta"][RETRY_AFTER]
        assert 10 <= wait <= 20
        assert f"is left alone for {wait} s more" in refused["content"][0]["text"]
        assert refused["_meta"]["mcpbridge/error"] == "UpstreamResting"
        time_passes()
        assert state() == "half-open"
        await call("fail", how="status 500")
        assert state() == "open", "the call that found out failed as well"
        assert (await call("echo", text="too early"))["_meta"][RETRY_AFTER] > 20, "and longer than before"
        time_passes()
        assert (await call("echo", text="back again"))["content"][0]["text"] == "back again"
        assert state() == "closed"
        journal = json.loads((await call("journal"))["content"][0]["text"])
        assert "too early" not in json.dumps(journal)


async def test_while_one_call_finds_out_others_are_told_when_to_come_back() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": UpstreamHttpError("up", 500, "HTTP 500")})
    settings = {"up": {"breaker": {"failures": 1, "open": 1e-6}}}
    async with bridged({"up": transport}, servers=settings) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        call = {"name": "up__echo", "arguments": {}}
        await ear.ask("tools/call", call)
        transport.script = {**transport.script, "tools/call": SILENCE}
        probe = asyncio.create_task(ear.ask("tools/call", call, b"2"))
        await transport.hears("tools/call", times=2)
        refused = (await ear.ask("tools/call", call, b"3"))["result"]
        assert "one call is finding out" in refused["content"][0]["text"]
        assert refused["_meta"][RETRY_AFTER] == 1
        answer = {
            "jsonrpc": "2.0",
            "id": transport.asked("tools/call")[-1]["id"],
            "result": LEGACY_SERVER["tools/call"],
        }
        transport.line.gives(answer)
        assert "isError" not in (await probe)["result"]
        assert bridge.status()["servers"][0]["breaker"] == "closed"


async def test_a_server_whose_breaker_is_off_gets_every_call() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": UpstreamHttpError("up", 500, "HTTP 500")})
    async with bridged({"up": transport}, servers={"up": {"breaker": {"failures": 0}}}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        for number in range(20):
            await ear.ask("tools/call", {"name": "up__echo", "arguments": {}}, b"%d" % (number + 2))
        assert len(transport.asked("tools/call")) == 20
