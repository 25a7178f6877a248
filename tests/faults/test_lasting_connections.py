"""Servers over WebSocket and HTTP+SSE that cut, choke or lure: the call says what happened, and the next one works."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from support.harness import Place, explains, python_server, undisturbed
from support.upstreams.scripted_http import Ask, chunk, events_head, http_server, reply

Message = dict[str, Any]

HEALTHY = python_server("plain")
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "fail")]


class Server:
    """Answers what every client asks; `say` is how its transport says something to a client."""

    async def take(self, message: Message, link: Any) -> None:
        match message.get("method"):
            case "initialize":
                info = {"name": "odd", "version": "1"}
                result: Any = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                result = {"tools": TOOLS}
            case "tools/call" if message["params"]["name"] == "fail":
                await self.fail(message["params"]["arguments"]["how"], message["id"], link)
                return
            case "tools/call":
                result = {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
            case method if "id" in message:
                error = {"code": -32601, "message": f"no {method}"}
                await self.say({"jsonrpc": "2.0", "id": message["id"], "error": error}, link)
                return
            case _:
                return
        await self.say({"jsonrpc": "2.0", "id": message["id"], "result": result}, link)

    async def say(self, message: Message, link: Any) -> None:
        raise NotImplementedError

    async def fail(self, how: str, id_: int, link: Any) -> None:
        raise NotImplementedError


class WebSocketServer(Server):
    async def serve(self, connection: ServerConnection) -> None:
        async for data in connection:
            await self.take(json.loads(data), connection)

    async def say(self, message: Message, link: ServerConnection) -> None:
        await link.send(json.dumps(message))

    async def fail(self, how: str, id_: int, link: ServerConnection) -> None:
        match how:
            case "cut":
                link.transport.abort()
            case "close":
                await link.close(1011, "out of memory")
            case "garble":
                await link.send(f'{{"jsonrpc":"2.0","id":{id_},"result":{{"content":[oops]}}}}')
            case "large":
                await link.send(json.dumps({"jsonrpc": "2.0", "id": id_, "result": {"x": "y" * 3_000_000}}))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        async with serve(self.serve, "127.0.0.1", 0, subprotocols=["mcp"], compression=None) as serving:  # type: ignore[list-item]
            yield f"ws://127.0.0.1:{serving.sockets[0].getsockname()[1]}/"


class SseServer(Server):
    def __init__(self) -> None:
        self.streams: dict[str, Ask] = {}

    async def script(self, ask: Ask) -> bytes | None:
        if ask.method == "GET":
            name = str(len(self.streams))
            self.streams[name] = ask
            await ask.say(events_head(), chunk(f"event: endpoint\ndata: /post?{name}\n\n".encode()))
            await ask.gone()
            return None
        if not ask.path.startswith("/post?"):
            return reply(status=405)
        await ask.say(reply(status=202))
        await self.take(ask.message, self.streams[ask.path.partition("?")[2]])
        return None

    async def say(self, message: Message, link: Ask) -> None:
        await link.say(chunk(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"))

    async def fail(self, how: str, id_: int, link: Ask) -> None:
        match how:
            case "cut":
                await link.say(chunk(b'event: message\ndata: {"jsonrpc":"2.0","id":%d,"res' % id_))
                link.writer.close()
            case "close":
                await link.say(chunk(b""))
                link.writer.close()
            case "garble":
                await link.say(chunk(b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[oops]}}\n\n' % id_))
            case "large":
                await self.say({"jsonrpc": "2.0", "id": id_, "result": {"x": "y" * 3_000_000}}, link)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        async with http_server(self.script) as server:
            yield server.url


@pytest.mark.parametrize(
    ("kind", "how", "said"),
    [
        (WebSocketServer, "cut", "the connection was cut"),
        (WebSocketServer, "close", "1011 (internal error): out of memory"),
        (WebSocketServer, "garble", "cannot be read"),
        (WebSocketServer, "large", "larger than the limit of 1 MiB"),
        (SseServer, "cut", "cut in the middle of a message"),
        (SseServer, "close", "ended its event stream"),
        (SseServer, "garble", "cannot be read"),
        (SseServer, "large", "larger than the limit of 1 MiB"),
    ],
)
async def test_a_failure_is_told_at_once_and_the_next_call_works(
    place: Place, kind: type[WebSocketServer | SseServer], how: str, said: str
) -> None:
    async with kind().running() as url:
        servers = {"odd": {"url": url}, "healthy": HEALTHY}
        async with place.bridge(servers, limits={"max_frame": "1 MiB"}) as client:
            await client.initialize()
            await client.tools_with("odd__echo")
            await client.tools_with("healthy__echo")
            async with undisturbed(client):
                explains(await client.call("odd__fail", how=how), "odd", said)
                assert (await client.call("odd__echo", text="again")).text == "again"


async def test_an_endpoint_on_another_origin_is_named_in_the_status(place: Place) -> None:
    posted = asyncio.Event()

    async def foreign(ask: Ask) -> bytes | None:
        posted.set()
        return reply(status=202)

    async with http_server(foreign) as other:

        async def script(ask: Ask) -> bytes | None:
            if ask.method == "POST":
                return reply(status=405)
            await ask.say(events_head(), chunk(f"event: endpoint\ndata: {other.url}\n\n".encode()))
            await ask.gone()
            return None

        async with http_server(script) as server:
            headers = {"Authorization": "Bearer s3cret-token"}
            servers = {"lured": {"url": server.url, "transport": "sse", "headers": headers}}
            listed = await place.run("list", "--config", str(place.config(servers)))
    assert "another origin" in listed.err + listed.out
    assert not posted.is_set()
    assert other.asks == []
