"""The decision table for messages of clients: each case over every front, and the client is served on.

JSON-RPC 2.0, sections 4 to 6; RFC 8259; MCP 2025-11-25, Base Protocol. The cases are in `support/client_frames.py`.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
import websockets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect

from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.downstream.stdio import serve_stdio
from mcpbridge.protocol.error_codes import INVALID_REQUEST
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.reading.client_messages import encode_refusal, read_client_message
from mcpbridge.protocol.reading.unreadable import Spoiled
from support.client_frames import BATCHES, CASES, PAGE, PARSE, Case, page
from support.front_clients import http_server
from support.in_process_bridge import bridged, envelope
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

Message = dict[str, Any]
Answers = list[Any]
Exchange = Callable[[bytes, int], Awaitable[Answers]]
"""Sends one frame and then a ping; returns what else comes, when the ping is answered and there are as many answers."""

FRONTS = ("stdio", "http", "sse", "websocket")
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def opening(revision: str) -> bytes:
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    return json.dumps({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params}).encode()


class Line:
    """A channel on which answers come in any order: what arrives, until the answer to a ping."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._pings = 0

    def arrived(self, data: bytes | str) -> None:
        """One message came; it must be JSON, strictly."""
        self._arrived.put_nowait(strictly(data))

    async def exchange(self, frame: bytes, count: int) -> Answers:
        await self._send(frame)
        self._pings += 1
        id_ = f"ping {self._pings}"
        await self._send(b'{"jsonrpc":"2.0","id":"%b","method":"ping"}' % id_.encode())
        answers: Answers = []
        is_alive = False
        with anyio.fail_after(30):
            while not is_alive or len(answers) < count:
                message = await self._arrived.get()
                if not isinstance(message, list) and message["id"] == id_:
                    is_alive = True
                else:
                    answers.append(message)
        return answers


def strictly(data: bytes | str) -> Any:
    def refuse(text: str) -> Any:
        raise AssertionError(f"{text} is no JSON")

    return json.loads(data, parse_constant=refuse)


@asynccontextmanager
async def on_stdio(bridge: Any) -> AsyncGenerator[Exchange]:
    into_read, into_write = os.pipe()
    out_read, out_write = os.pipe()
    loop = asyncio.get_running_loop()
    output = asyncio.StreamReader(limit=1 << 28)
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(output), os.fdopen(out_read, "rb"))

    async def send(data: bytes) -> None:
        await loop.run_in_executor(None, write, data + b"\n")

    def write(data: bytes) -> None:
        while data:
            data = data[os.write(into_write, data) :]

    line = Line(send)

    async def read() -> None:
        while data := await output.readline():
            line.arrived(data)

    tasks = [
        asyncio.create_task(serve_stdio(bridge.server, in_fd=into_read, out_fd=out_write)),
        asyncio.create_task(read()),
    ]
    try:
        yield line.exchange
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        reading.close()
        for descriptor in (into_read, into_write, out_write):
            os.close(descriptor)


@asynccontextmanager
async def on_websocket(origin: str) -> AsyncGenerator[Exchange]:
    url = origin.replace("http", "ws", 1) + "/ws"
    async with connect(url, subprotocols=[websockets.Subprotocol("mcp")], max_size=None, proxy=None) as socket:
        line = Line(lambda data: socket.send(data, text=True))

        async def read() -> None:
            async for message in socket:
                line.arrived(message)

        reading = asyncio.create_task(read())
        try:
            yield line.exchange
        finally:
            reading.cancel()
            await asyncio.wait([reading])


@asynccontextmanager
async def on_sse(origin: str) -> AsyncGenerator[Exchange]:
    async with (
        httpx2.AsyncClient(trust_env=False, timeout=30) as http,
        http.stream("GET", origin + "/sse", headers={"accept": "text/event-stream"}) as response,
    ):
        endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def send(data: bytes) -> None:
            posted = await http.post(origin + await endpoint, content=data, headers=ACCEPT)
            if posted.status_code != 202:
                line.arrived(posted.content)

        line = Line(send)

        async def read() -> None:
            event = ""
            async for text in response.aiter_lines():
                if text.startswith("event: "):
                    event = text[7:]
                elif text.startswith("data: ") and event == "endpoint":
                    endpoint.set_result(text[6:])
                elif text.startswith("data: "):
                    line.arrived(text[6:])

        reading = asyncio.create_task(read())
        try:
            yield line.exchange
        finally:
            reading.cancel()
            await asyncio.wait([reading])


@asynccontextmanager
async def on_http(origin: str) -> AsyncGenerator[Exchange]:
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
        session: dict[str, str] = {}

        async def exchange(frame: bytes, count: int) -> Answers:
            response = await http.post(origin + "/mcp", content=frame, headers=ACCEPT | session)
            if "mcp-session-id" in response.headers:
                session["mcp-session-id"] = response.headers["mcp-session-id"]
            if session:
                ping = b'{"jsonrpc":"2.0","id":"on","method":"ping"}'
                on = await http.post(origin + "/mcp", content=ping, headers=ACCEPT | session)
                assert on.json() == {"jsonrpc": "2.0", "id": "on", "result": {}}
            if response.status_code == 202:
                assert not response.content
                return []
            text = response.content
            if response.headers["content-type"].startswith("text/event-stream"):
                text = text.partition(b"data: ")[2].partition(b"\n")[0]
            answer = strictly(text)
            assert (
                isinstance(answer, list)
                or (response.status_code == 200) == ("result" in answer)
                or (response.status_code == 200 and answer["error"]["code"] in (-32601, -32602))
            )
            return [answer]

        yield exchange


@asynccontextmanager
async def fresh(kind: str) -> AsyncGenerator[Exchange]:
    """A client of this front that has not said anything yet."""
    async with AsyncExitStack() as stack:
        bridge = await stack.enter_async_context(bridged({"up": ScriptedTransport(LEGACY_SERVER)}))
        if kind == "stdio":
            yield await stack.enter_async_context(on_stdio(bridge))
        else:
            at = await stack.enter_async_context(http_server(bridge, HttpSettings()))
            open_ = {"http": on_http, "sse": on_sse, "websocket": on_websocket}[kind]
            yield await stack.enter_async_context(open_(at.origin))


@asynccontextmanager
async def opened(kind: str, revision: str = "2025-11-25") -> AsyncGenerator[Exchange]:
    """A client of this front, in session."""
    async with fresh(kind) as exchange:
        [answer] = await exchange(opening(revision), 1)
        assert answer["result"]["protocolVersion"] == revision
        yield exchange


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def expected(case: Case, kind: str) -> tuple[Any, Any] | None:
    """The id and the outcome of the one answer; None if there must be none."""
    is_http = kind in ("http", "sse")
    if case.outcome == "nothing":
        return (None, -32600) if case.is_refused_by_http and is_http else None
    if case.outcome == PARSE and is_http:
        return None, PARSE
    return case.id, case.outcome


def outcome(answer: Message) -> tuple[Any, Any]:
    assert answer["jsonrpc"] == "2.0"
    if "error" in answer:
        assert answer["error"]["message"]
        return answer["id"], answer["error"]["code"]
    assert answer["result"] == {}
    return answer["id"], "served"


@pytest.mark.parametrize("kind", FRONTS)
@pytest.mark.parametrize("group", CASES)
async def test_each_message_gets_the_answer_of_the_table_and_the_client_is_served_on(group: str, kind: str) -> None:
    wrong: list[str] = []
    async with opened(kind) as exchange:
        for case in CASES[group]:
            if kind == "websocket" and not is_utf8(case.frame):
                continue  # ends the connection; see below
            wanted = expected(case, kind)
            answers = await exchange(case.frame, wanted is not None)
            got = [outcome(answer) for answer in answers]
            if got != ([] if wanted is None else [wanted]):
                wrong.append(f"{case.what}: {case.frame[:90]!r} gives {got}, not {wanted}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", FRONTS)
async def test_batches_are_answered_as_the_table_says_in_the_revision_that_has_them(kind: str) -> None:
    wrong: list[str] = []
    async with opened(kind, "2025-03-26") as exchange:
        for what, (frame, wanted) in BATCHES.items():
            if kind == "websocket" and not is_utf8(frame):
                continue
            answers = await exchange(frame, wanted is not None)
            if isinstance(wanted, int):
                got: Any = [outcome(answer) for answer in answers]
                right = got == [(None, wanted)]
            else:
                got = [[outcome(answer) for answer in batch] for batch in answers]
                right = got == ([] if wanted is None else [wanted])
            if not right:
                wrong.append(f"{what}: gives {got}, not {wanted}")
    assert not wrong, "\n".join(wrong)


async def test_text_that_is_not_utf8_ends_a_websocket_with_the_code_for_it() -> None:
    """RFC 6455, section 8.1."""
    async with bridged({"up": ScriptedTransport(LEGACY_SERVER)}) as bridge, http_server(bridge, HttpSettings()) as at:
        url = at.origin.replace("http", "ws", 1) + "/ws"
        async with connect(url, subprotocols=[websockets.Subprotocol("mcp")], proxy=None) as socket:
            await socket.send(b'{"jsonrpc":"2.0","id":1,"method":"p\xff"}', text=True)
            with anyio.fail_after(30), pytest.raises(websockets.ConnectionClosed):
                await socket.recv()
            assert socket.close_code == 1007


async def test_a_raw_line_break_in_a_string_is_no_json_where_messages_may_span_lines() -> None:
    frame = b'{"jsonrpc":"2.0",\n"id":7,"method":"ping","params":{"a":"x\ny"}}'
    for kind in ("http", "sse", "websocket"):
        async with opened(kind) as exchange:
            [answer] = await exchange(frame, 1)
            assert outcome(answer) == (7 if kind == "websocket" else None, PARSE)
            assert [outcome(one) for one in await exchange(frame.replace(b"x\ny", b"xy"), 1)] == [(7, "served")]


async def test_what_shares_a_write_with_a_broken_message_is_answered() -> None:
    async with opened("stdio") as exchange:
        lines = [b'{"jsonrpc":"2.0","id":1,"method":"p\xffg"}', b'{"jsonrpc":"2.0","id":2,"method":"ping"}', b"[1,"]
        answers = {outcome(answer) for answer in await exchange(b"\n".join(lines), 3)}
        assert answers == {(1, PARSE), (2, "served"), (None, PARSE)}


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.binary(max_size=200)
    | st.text(max_size=80).map(lambda text: ('{"jsonrpc":"2.0","id":7,' + text).encode("utf-8", "surrogatepass"))
    | st.binary(max_size=60).map(lambda data: b'{"jsonrpc":"2.0","id":7,"method":"' + data + b'"}')
    | st.binary(max_size=20).map(lambda data: b'{"jsonrpc":"2.0","id":' + data + b',"method":"x"}')
)
def test_no_bytes_raise_and_every_refusal_is_json_on_one_line(data: bytes) -> None:
    """Promise of the bridge: what it writes is valid JSON, whatever it was sent."""
    for item in read_client_message(data):
        if isinstance(item, Frame):
            for part in (item.id, item.params):
                if part:
                    strictly(bytes(part))
        elif isinstance(item, Spoiled) and (written := encode_refusal(item)):
            assert b"\n" not in written
            answer = strictly(written)
            assert isinstance(answer["id"], int | str | float | None)
            assert answer["error"]["code"] in (PARSE, INVALID_REQUEST)


def test_there_are_many_cases() -> None:
    assert sum(map(len, CASES.values())) + len(BATCHES) >= 120


def test_the_page_is_what_the_cases_say() -> None:
    """`PYTHONPATH=tests python -m support.client_frames --write` writes it anew."""
    assert PAGE.read_text("utf-8") == page()


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "server/discover", "subscriptions/listen", "no/such"])
@pytest.mark.parametrize("kind", ["stdio", "sse", "websocket"])
async def test_a_request_without_the_envelope_after_a_modern_one_lacks_it(kind: str, method: str) -> None:
    """MCP 2026-07-28, Base Protocol, `_meta`: on every request; what lacks it gets -32602, and names the key."""
    async with fresh(kind) as exchange:
        hello = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": envelope()}}
        [answer] = await exchange(json.dumps(hello).encode(), 1)
        assert "2026-07-28" in answer["result"]["supportedVersions"]
        without: list[Message] = [{}, {"params": {}}, {"params": {"_meta": {}}}, {"params": {"_meta": {"a": 1}}}]
        for params in without:
            [answer] = await exchange(json.dumps({"jsonrpc": "2.0", "id": 2, "method": method, **params}).encode(), 1)
            assert (answer["id"], answer["error"]["code"]) == (2, -32602)
            assert "protocolVersion" in answer["error"]["message"]
        [answer] = await exchange(opening("2025-11-25"), 1)  # both eras may be mixed
        assert answer["result"]["protocolVersion"] == "2025-11-25"
        [answer] = await exchange(b'{"jsonrpc":"2.0","id":3,"method":"tools/list"}', 1)
        assert answer["result"]["tools"]
