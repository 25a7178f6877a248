"""What becomes of a request that another bridge answers, at the connection of its client (issue 24)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from types import NoneType

import httpx2
import pytest

from fleet.test_link import ME, OTHER, linked
from mcpbridge.downstream.http.connection import Connections
from mcpbridge.downstream.http.exchange import DirectExchange, Exchange, Refused
from mcpbridge.downstream.http.sessions import Sessions
from mcpbridge.fleet.counts import FleetCounts
from mcpbridge.fleet.forwarding import LOST, MOVED, MOVED_STATUS, Forwarding, PassedOn
from mcpbridge.fleet.link.connections import Links, OutcomeUnknown
from mcpbridge.fleet.link.frames import Ask, Reply
from mcpbridge.fleet.link.serving import Served
from mcpbridge.fleet.members import Members
from mcpbridge.fleet.records import FleetRecords, Member
from mcpbridge.fleet.sessions.sessions import FleetSessions
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.storage.settings import StoreSettings, redis_address
from support.redis_server import Server, needs_redis

SESSION = b"0-" + OTHER.encode()
CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call"}'
JSON, EVENTS = [(b"content-type", b"application/json")], [(b"content-type", b"text/event-stream")]


class Front:
    """Passes all requests on: without tasks where it can be, if that is asked for."""

    def __init__(self, links: Links, address: str, *, is_direct: bool) -> None:
        self.counts = FleetCounts()
        self.forwarding = Forwarding(links, self.counts)
        self._member = Member(OTHER, address, "other", "1", "", 0.0)
        self._is_direct = is_direct
        self.in_tasks = 0
        self.sessions: FleetSessions | None = None
        """What answers those, if it is to."""
        self.found = asyncio.Queue[object]()
        """What became of requests that continued in tasks."""

    async def handle(self, exchange: Exchange) -> None:
        self.in_tasks += 1
        await self.forwarding.ask(self._member, exchange, CALL)

    def take(self, exchange: DirectExchange) -> bool:
        if not self._is_direct:
            return False

        async def rest(sent: PassedOn) -> None:
            self.in_tasks += 1
            found: object
            if self.sessions is not None:
                try:
                    await self.sessions.serve(exchange, SESSION, sent)
                except Refused as refused:
                    await exchange.refuse(refused)
                return
            try:
                found = await self.forwarding.ask(self._member, exchange, CALL, stream=sent.stream)
            except OutcomeUnknown as error:
                found = error
            if not isinstance(found, NoneType):
                await exchange.send_empty(500)
            self.found.put_nowait(found)

        return self.forwarding.pass_on(self._member, exchange, exchange.whole_body, rest)

    def upgrade(self, path: str, query: bytes, raw_headers: object, transport: asyncio.Transport) -> None:
        transport.close()

    async def stop(self, seconds: float) -> None: ...


@asynccontextmanager
async def passing_on(
    answer: Callable[[Served], Awaitable[None]], *, is_direct: bool = False
) -> AsyncGenerator[tuple[Front, httpx2.AsyncClient]]:
    """A client of a bridge whose requests another one answers so."""
    async with linked(answer) as (links, address):
        if is_direct:  # the first request would make the connection, in a task
            member = Ask("POST", "/mcp", b"", [], "", 0)
            (await links.ask(OTHER, address, member, b"")).close()
        connections = Connections(front := Front(links, address, is_direct=is_direct), front.take)
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
@pytest.mark.parametrize("is_direct", [False, True], ids=["in a task", "begun without a task"])
async def test_an_answer_that_breaks_off_does_not_look_whole(
    headers: list[tuple[bytes, bytes]], begin: bytes, is_direct: bool
) -> None:
    async with passing_on(breaking(headers, begin), is_direct=is_direct) as (_, http):
        with pytest.raises(httpx2.TransportError):
            await http.post("/mcp", content=CALL)


@pytest.mark.parametrize("is_direct", [False, True], ids=["in a task", "begun without a task"])
async def test_a_stream_that_breaks_off_ends_with_the_error_of_its_request(is_direct: bool) -> None:
    async with passing_on(breaking(EVENTS, b": hello\n\n"), is_direct=is_direct) as (_, http):
        answer = await http.post("/mcp", content=CALL)
        assert answer.text.startswith(": hello\n\nevent: message\n")
        assert LOST in answer.text


async def test_a_plain_answer_is_passed_on_without_a_task() -> None:
    """With what the other bridge says in headers, but for those of its own connection."""

    async def answer(served: Served) -> None:
        text = await served.body()
        served.reply_whole(Reply(200, [*JSON, (b"x-more", b"1"), (b"connection", b"close")]), b'"%b"' % (text or b""))

    async with passing_on(answer, is_direct=True) as (front, http):
        for _ in range(3):  # the second has a head that is known
            response = await http.post("/mcp", content=b"hello")
            assert (response.status_code, response.json()) == (200, "hello")
            assert response.headers["x-more"] == "1"
            assert "connection" not in response.headers
        assert front.in_tasks == 0
        assert front.forwarding.under_way == 0
        assert front.counts.forwarded["answered"] == 3


@pytest.mark.parametrize(
    ("status", "size"), [(404, 2), (200, 100_000), (202, 0)], ids=["an error", "a large one", "an empty one"]
)
async def test_any_other_answer_comes_as_it_is(status: int, size: int) -> None:
    async def answer(served: Served) -> None:
        await served.body()
        served.reply_whole(Reply(status, JSON if size else []), b"x" * size)

    async with passing_on(answer, is_direct=True) as (front, http):
        response = await http.post("/mcp", content=CALL)
        assert (response.status_code, len(response.content)) == (status, size)
        assert front.in_tasks == 1
        assert front.forwarding.under_way == 0


async def test_a_call_whose_session_has_moved_was_not_answered() -> None:
    async def answer(served: Served) -> None:
        await served.body()
        served.reply_whole(Reply(MOVED_STATUS, []), b"")

    async with passing_on(answer, is_direct=True) as (front, http):
        assert (await http.post("/mcp", content=CALL)).status_code == 500
        assert await front.found.get() is MOVED


async def test_the_outcome_of_a_call_whose_bridge_is_lost_is_unknown() -> None:
    async def answer(served: Served) -> None:
        await served.body()
        served.fail()

    async with passing_on(answer, is_direct=True) as (front, http):
        assert (await http.post("/mcp", content=CALL)).status_code == 500
        assert isinstance(await front.found.get(), OutcomeUnknown)


async def test_the_other_bridge_hears_that_the_client_has_left() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def answer(served: Served) -> None:
        if await served.body() == CALL:
            asked.set()
            await served.until_left()
            left.set()

    async with passing_on(answer, is_direct=True) as (front, http):
        call = asyncio.create_task(http.post("/mcp", content=CALL))
        await asked.wait()
        assert front.in_tasks == 0
        call.cancel()
        async with asyncio.timeout(60):
            await left.wait()
        assert front.counts.forwarded["left"] == 1


@asynccontextmanager
async def continued_in_sessions(
    answer: Callable[[Served], Awaitable[None]], tmp_path: Path, *, max_body: int = 1000
) -> AsyncGenerator[tuple[Front, FleetSessions, httpx2.AsyncClient]]:
    """As `passing_on` without tasks; what needs one is served by the sessions of a fleet."""
    redis = Server(tmp_path / "redis").start()
    records = FleetRecords(redis_address(StoreSettings(kind="redis", url=redis.url)), "x")
    try:
        async with passing_on(answer, is_direct=True) as (front, http):
            members = Members(records, Member(ME, "127.0.0.1:1", "me", "1", "", 0.0))
            counts = FleetCounts()
            sessions = FleetSessions(records, members, front.forwarding, counts, idle=60, max_body=max_body, keep=30)
            sessions.serve_by(NoSessions())
            front.sessions = sessions
            yield front, sessions, http
    finally:
        await records.close()
        redis.kill()


@needs_redis
async def test_what_was_passed_on_is_answered_though_this_bridge_may_have_its_session(tmp_path: Path) -> None:
    """It was sent, so it must not be called not sent."""
    is_unsure = asyncio.Event()

    async def answer(served: Served) -> None:
        await served.body()
        await is_unsure.wait()
        served.reply(Reply(200, EVENTS))
        await served.write(b'data: {"jsonrpc":"2.0","id":7,"result":{}}\n\n')
        served.end()

    async with continued_in_sessions(answer, tmp_path) as (front, sessions, http):
        front_of_sessions = NoSessions()
        front_of_sessions.sessions.unsure.add(SESSION)
        sessions.serve_by(front_of_sessions)
        sessions.step_back()
        is_unsure.set()
        response = await http.post("/mcp", content=CALL, headers={"mcp-session-id": SESSION.decode()})
        assert (response.status_code, '"result"' in response.text) == (200, True)
        assert front.in_tasks == 1
        assert front.forwarding.under_way == 0


@needs_redis
async def test_the_other_bridge_hears_that_nobody_waits_for_what_was_passed_on(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def answer(served: Served) -> None:
        if await served.body() == CALL:
            served.reply(Reply(200, EVENTS))
            await served.until_left()
            left.set()

    async with continued_in_sessions(answer, tmp_path, max_body=1) as (front, _, http):
        response = await http.post("/mcp", content=CALL, headers={"mcp-session-id": SESSION.decode()})
        assert response.status_code == 413
        async with asyncio.timeout(60):
            await left.wait()
        assert front.forwarding.under_way == 0
        assert front.counts.forwarded["left"] == 1


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
            sessions = FleetSessions(records, members, front.forwarding, FleetCounts(), idle=60, max_body=1000, keep=30)
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
