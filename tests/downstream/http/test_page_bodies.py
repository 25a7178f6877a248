"""Applications beside the MCP endpoints get a body in time, or the front answers for them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from mcpbridge.downstream.auth.bearer_tokens import Authenticator
from mcpbridge.downstream.http.app import HttpFront
from mcpbridge.downstream.http.connection import Connections
from mcpbridge.downstream.http.exchange import Receive, Scope, Send
from mcpbridge.downstream.http.routes import App
from mcpbridge.downstream.settings import HttpSettings
from support.http_front import ScriptedBridge, ScriptedCore

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def serving(app: App, kind: str, seconds: float) -> AsyncIterator[Callable[[], Any]]:
    """The front on a real socket, with `/form` as one of its pages, public pages or mounts; opens connections."""
    kinds: dict[str, Any] = {kind: {"/form": lambda: app}}
    bridge = ScriptedBridge(ScriptedCore())
    front = HttpFront(bridge, HttpSettings(), Authenticator([]), body_seconds=seconds, **kinds)
    connections = Connections(front, front.take)
    server = await asyncio.get_running_loop().create_server(connections.connect, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield lambda: asyncio.open_connection("127.0.0.1", port)
    finally:
        server.close()
        await connections.close(0.1)


def head(length: int) -> bytes:
    lines = (
        b"POST /form HTTP/1.1",
        b"host: localhost",
        b"content-type: application/x-www-form-urlencoded",
        b"content-length: %d" % length,
    )
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the body."""
    answer = PlainTextResponse(await Request(scope, receive).body())
    await answer(scope, receive, send)


KINDS = ["pages", "public", "mounts"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_that_never_comes_is_answered_for_the_application_and_the_connection_ends(kind: str) -> None:
    async with asyncio.timeout(60), serving(echo, kind, 0.05) as connect:
        reader, writer = await connect()
        writer.write(head(50) + b"a=1")
        answer = await reader.read()  # to the end of the connection
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408 "), answer
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_that_comes_a_byte_at_a_time_has_no_more_time_than_one_that_does_not_come(kind: str) -> None:
    came = asyncio.Event()

    async def listens(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            came.set()
        came.set()
        ended.set()

    ended = asyncio.Event()
    async with asyncio.timeout(60), serving(listens, kind, 0.2) as connect:
        _, writer = await connect()
        writer.write(head(1_000_000_000))
        while not ended.is_set():
            writer.write(b"x")
            await came.wait()
            came.clear()
        writer.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_what_an_application_does_with_a_whole_body_may_take_longer(kind: str) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        leaving = asyncio.ensure_future(receive())  # who streams watches for the end of the client
        done, _ = await asyncio.wait([leaving], timeout=0.3)
        leaving.cancel()
        await PlainTextResponse(b"left" if done else body)(scope, receive, send)

    async with asyncio.timeout(60), serving(slow, kind, 0.05) as connect:
        reader, writer = await connect()
        writer.write(head(3) + b"a=1")
        found = await reader.readuntil(b"a=1")
        writer.close()
    assert found.startswith(b"HTTP/1.1 200 ")
