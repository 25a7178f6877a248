"""A WebSocket server that is well until one moment, and then does one thing wrong.

The moment is `upgrade`, or a method of the bridge's.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import websockets.asyncio.server
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response

from support.upstreams.hostile_http import LARGE, SECRET, Message, result_of

__all__ = ["WS_FAULTS", "HostileWs", "hostile_ws"]


class HostileWs:
    """The server's side: what it has seen, and whether it is well again."""

    def __init__(self, moment: str, fault: str) -> None:
        self.moment, self.fault = moment, fault
        self.is_well = False
        self.calls = self.strikes = 0
        self.struck = asyncio.Event()
        self.url = ""

    def strikes_at(self, moment: str) -> bool:
        """Whether the fault shows now."""
        if self.is_well or moment != self.moment:
            return False
        self.strikes += 1
        self.struck.set()
        return True

    async def serve(self, connection: ServerConnection) -> None:
        """One connection."""
        with suppress(ConnectionClosed):
            async for text in connection:
                ask: Message = json.loads(text)
                method = ask.get("method", "")
                self.calls += method == "tools/call"
                if "id" not in ask:
                    continue
                if self.strikes_at(method):
                    await WS_FAULTS[self.fault](connection, ask)
                else:
                    await connection.send(answer(ask))


def message(ask: Message, **changes: Any) -> Message:
    """The good answer, with other members; `...` leaves one out."""
    result = result_of(ask["method"])
    reply: Message = {"jsonrpc": "2.0", "id": ask["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    else:
        reply["result"] = result
    return {name: value for name, value in {**reply, **changes}.items() if value is not ...}


def answer(ask: Message, **changes: Any) -> str:
    """The same as text."""
    return json.dumps(message(ask, **changes))


Fault = Callable[[ServerConnection, Message], Awaitable[None]]


def frames(*make: Callable[[Message], tuple[Opcode, bytes, bool]]) -> Fault:
    """These frames in place of the answer, as they are."""

    async def act(connection: ServerConnection, ask: Message) -> None:
        for one in make:
            opcode, data, is_last = one(ask)
            await write(connection, Frame(opcode, data, is_last).serialize(mask=False))

    return act


async def write(connection: ServerConnection, data: bytes) -> None:
    """Write bytes past the library."""
    connection.transport.write(data)
    await asyncio.sleep(0)


def sent(*make: Callable[[Message], str | bytes]) -> Fault:
    """These messages in place of the answer."""

    async def act(connection: ServerConnection, ask: Message) -> None:
        for one in make:
            await connection.send(one(ask))

    return act


def closes(code: int, *, answers: bool = False) -> Fault:
    """A close frame with this code, and words with the secret in them."""

    async def act(connection: ServerConnection, ask: Message) -> None:
        if answers:
            await connection.send(answer(ask))
        await connection.close(code, f"no more for {SECRET}")

    return act


def raw(data: bytes) -> Fault:
    """Bytes that are no frames, or wrong ones."""
    return lambda connection, ask: write(connection, data)


async def _aborts(connection: ServerConnection, ask: Message) -> None:
    connection.transport.abort()


async def _silent(connection: ServerConnection, ask: Message) -> None:
    pass


def _part(begin: float, end: float) -> Callable[[Message], bytes]:
    def cut(ask: Message) -> bytes:
        data = answer(ask).encode()
        return data[int(begin * len(data)) : int(end * len(data))]

    return cut


def _first(ask: Message) -> tuple[Opcode, bytes, bool]:
    return Opcode.TEXT, _part(0, 0.5)(ask), False


def _rest(ask: Message) -> tuple[Opcode, bytes, bool]:
    return Opcode.CONT, _part(0.5, 1)(ask), True


WS_FAULTS: dict[str, Fault] = {
    "answer in binary": sent(lambda ask: answer(ask).encode()),
    "answer in fragments": frames(_first, _rest),
    "a ping between fragments": frames(_first, lambda ask: (Opcode.PING, b"x", True), _rest),
    "a pong that nobody asked for": frames(
        lambda ask: (Opcode.PONG, b"x", True), lambda ask: (Opcode.TEXT, answer(ask).encode(), True)
    ),
    "fragments without end": frames(_first),
    "answer twice": sent(answer, answer),
    "text before": sent(lambda ask: "hello", answer),
    "an empty message before": sent(lambda ask: "", answer),
    "no JSON": sent(lambda ask: "{jsonrpc"),
    "cut off": sent(lambda ask: answer(ask)[:-3]),
    "binary that is no JSON": sent(lambda ask: bytes(range(256))),
    "too large": sent(lambda ask: answer(ask, x="y" * LARGE)),
    "too large, in fragments": frames(_first, *[lambda ask: (Opcode.CONT, b" " * (LARGE // 4), False)] * 5, _rest),
    "id of another": sent(lambda ask: answer(ask, id=987_654)),
    "id as text": sent(lambda ask: answer(ask, id=str(ask["id"]))),
    "id missing": sent(lambda ask: answer(ask, id=...)),
    "result null": sent(lambda ask: answer(ask, result=None)),
    "error": sent(lambda ask: answer(ask, result=..., error={"code": -32000, "message": "out of order"})),
    "revision unknown": sent(
        lambda ask: answer(ask, result={**(result_of("initialize") or {}), "protocolVersion": "2031-01-01"})
    ),
    "silent": _silent,
    **{f"closes with {code}": closes(code) for code in (1000, 1001, 1003, 1008, 1009, 1011, 1012, 1013, 4000)},
    "answers, and closes with 1000": closes(1000, answers=True),
    "closes without a code": raw(b"\x88\x00"),
    "is cut": _aborts,
    "a frame that is masked": raw(b"\x81\x81abcd\x00"),
    "a frame of an unknown kind": raw(b"\x83\x00"),
    "a frame with reserved bits": raw(b"\xf1\x01x"),
    "text that is no UTF-8": raw(b"\x81\x04\xff\xfe{}"),
    "garbage": raw(bytes(range(1, 256)) * 4),
}
"""What may go wrong in place of an answer."""

REFUSALS = ("status 401", "status 403", "status 404", "status 426", "status 429", "status 500", "status 503")


@asynccontextmanager
async def hostile_ws(moment: str, fault: str) -> AsyncIterator[HostileWs]:
    """A running one."""
    server = HostileWs(moment, fault)

    async def upgrade(connection: ServerConnection, request: Request) -> Response | None:
        if not server.strikes_at("upgrade"):
            return None
        if fault.startswith("status "):
            return Response(int(fault[7:]), "Whatever", Headers(), f"no entry with the key {SECRET}".encode())
        if fault == "a web page":
            page = f"<title>Sign in {SECRET}</title>".encode()
            return Response(200, "OK", Headers({"Content-Type": "text/html"}), page)
        if fault == "redirects elsewhere":
            return Response(302, "Found", Headers({"Location": "http://203.0.113.9/"}), b"")
        if fault == "closes before the answer":
            connection.transport.abort()
        elif fault == "silent":
            await connection.wait_closed()
        elif fault == "garbage":
            await write(connection, bytes(range(256)) + b"\r\n\r\n")
            connection.transport.close()
        return None

    def subprotocol(connection: ServerConnection, offered: Any) -> Any:
        return "mcp" if "mcp" in offered else None

    def changed(connection: ServerConnection, request: Request, response: Response) -> None:
        if not server.is_well and server.moment == "upgrade":
            if fault == "another subprotocol":
                del response.headers["Sec-WebSocket-Protocol"]
                response.headers["Sec-WebSocket-Protocol"] = "graphql-ws"
            elif fault == "no subprotocol":
                del response.headers["Sec-WebSocket-Protocol"]
            elif fault == "a wrong key":
                del response.headers["Sec-WebSocket-Accept"]
                response.headers["Sec-WebSocket-Accept"] = "AAAA"

    async with websockets.asyncio.server.serve(
        server.serve,
        "127.0.0.1",
        0,
        process_request=upgrade,
        process_response=changed,
        select_subprotocol=subprotocol,
        compression=None,
        close_timeout=0.1,
        max_size=None,
        ping_interval=None,
    ) as serving:
        server.url = f"ws://127.0.0.1:{serving.sockets[0].getsockname()[1]}/mcp"
        yield server
