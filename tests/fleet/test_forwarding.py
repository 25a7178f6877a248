"""What becomes of a request that another bridge answers, at the connection of its client (issue 24)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import httpx2
import pytest

from fleet.test_link import ME, OTHER, linked
from mcpbridge.downstream.http.connection import Connections
from mcpbridge.downstream.http.exchange import Exchange
from mcpbridge.downstream.http.sessions import Sessions
from mcpbridge.fleet.counts import FleetCounts
from mcpbridge.fleet.forwarding import LOST, Forwarding
from mcpbridge.fleet.link.connections import Links, Served
from mcpbridge.fleet.link.frames import Reply
from mcpbridge.fleet.members import Members
from mcpbridge.fleet.records import FleetRecords, Member
from mcpbridge.fleet.sessions import FleetSessions
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.storage.settings import StoreSettings, redis_address
from support.redis_server import Server, needs_redis

CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call"}'
JSON, EVENTS = [(b"content-type", b"application/json")], [(b"content-type", b"text/event-stream")]


class Front:
    """Passes all requests on."""

    def __init__(self, links: Links, address: str) -> None:
        self.forwarding = Forwarding(links, FleetCounts())
        self._member = Member(OTHER, address, "other", "1", "", 0.0)

    async def handle(self, exchange: Exchange) -> None:
        await self.forwarding.ask(self._member, exchange, CALL)

    def upgrade(self, path: str, query: bytes, raw_headers: object, transport: asyncio.Transport) -> None:
        transport.close()

    async def stop(self, seconds: float) -> None: ...


@asynccontextmanager
async def passing_on(answer: Callable[[Served], Awaitable[None]]) -> AsyncGenerator[tuple[Front, httpx2.AsyncClient]]:
    """A client of a bridge whose requests another one answers so."""
    async with linked(answer) as (links, address):
        connections = Connections(front := Front(links, address))
        server = await asyncio.get_running_loop().create_server(connections.connect, "127.0.0.1", 0)
        root = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            async with httpx2.AsyncClient(base_url=root, trust_env=False, timeout=30) as http:
                yield front, http
        finally:
            server.close()
            await connections.close(1)


def breaking(headers: list[tuple[bytes, bytes]], begin: bytes) -> Callable[[Served], Awaitable[None]]:
    """A bridge that is lost after the beginning of its answer."""

    async def answer(served: Served) -> None:
        await served.body()
        served.reply(Reply(200, headers))
        await served.write(begin)
        served.fail()

    return answer


@pytest.mark.parametrize(
    ("headers", "begin"),
    [(JSON, b'{"jsonrpc":"2.0","id":7,"result":{}} '), (EVENTS, b'data: {"jsonrpc":"2.0",')],
    ids=["JSON", "in the middle of an event"],
)
async def test_an_answer_that_breaks_off_does_not_look_whole(headers: list[tuple[bytes, bytes]], begin: bytes) -> None:
    async with passing_on(breaking(headers, begin)) as (_, http):
        with pytest.raises(httpx2.TransportError):
            await http.post("/mcp", content=CALL)


async def test_a_stream_that_breaks_off_ends_with_the_error_of_its_request() -> None:
    async with passing_on(breaking(EVENTS, b": hello\n\n")) as (_, http):
        answer = await http.post("/mcp", content=CALL)
        assert answer.text.startswith(": hello\n\nevent: message\n")
        assert LOST in answer.text


@needs_redis
async def test_a_bridge_that_stops_waits_for_what_it_passes_on(tmp_path: Path) -> None:
    """Not for streams that clients open by GET: they open them again elsewhere."""
    redis = Server(tmp_path / "redis").start()
    records = FleetRecords(redis_address(StoreSettings(kind="redis", url=redis.url)), "x")
    asked, may_answer = asyncio.Queue[str](), asyncio.Event()

    async def answer(served: Served) -> None:
        await asked.put(served.head.method)
        await may_answer.wait()
        served.reply_whole(Reply(200, JSON), b"{}")

    try:
        async with passing_on(answer) as (front, http):
            members = Members(records, Member(ME, "127.0.0.1:1", "me", "1", "", 0.0))
            sessions = FleetSessions(records, members, front.forwarding, FleetCounts(), idle=60, max_body=1000)
            sessions.serve_by(NoSessions())
            stream = asyncio.create_task(http.get("/mcp"))
            assert await asked.get() == "GET"
            await sessions.drain(60)
            call = asyncio.create_task(http.post("/mcp", content=CALL))
            assert await asked.get() == "POST"
            draining = asyncio.create_task(sessions.drain(60))
            await members.look()  # behind its first act
            for _ in range(100):
                await asyncio.sleep(0)
            assert not draining.done()
            may_answer.set()
            assert (await call).status_code == 200
            await draining
            await stream
    finally:
        await records.close()
        redis.kill()


class NoSessions:
    """A front without sessions of its own."""

    def __init__(self) -> None:
        self.sessions = Sessions(
            lambda session: None, idle=60, limit=1, keep=60, max_event=0, projects=(), clock=monotonic
        )

    async def take_over(self, exchange: Exchange, id_: bytes, messages: Iterable[Frame]) -> bool:
        return False
