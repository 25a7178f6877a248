"""A request that came to another bridge and is answered here.

The bridge here asks who calls once more, with the same token: nothing that the other one says is believed, but for the
address of the client, and that `Host` and `Origin` are right.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from mcpbridge.downstream.http.exchange import NO_HEADERS, DirectExchange, Exchange, Headers
from mcpbridge.fleet.forwarding import HOP_BY_HOP, JSON, MOVED_STATUS
from mcpbridge.fleet.link.frames import PART, Ask, Reply
from mcpbridge.fleet.link.serving import Served
from mcpbridge.protocol.jsonrpc import decode_frame

_PLAIN_REPLY = Reply(200, [JSON])
_KNOWN_HEADS = 64
"""Each keeps its latest body."""


class Answering:
    """Answers requests that other members send."""

    def __init__(
        self,
        answer: Callable[[Exchange], Awaitable[None]],
        gives_up: Callable[[bytes], bool],
        hand_on: Callable[[bytes], Awaitable[None]],
        order: Callable[[Served, bytes], Awaitable[None]],
        take: Callable[[DirectExchange], bool],
    ) -> None:
        """`answer`: the front. `gives_up`: whether a session is for somebody else now; `hand_on`: let it go.

        `order` answers what other members ask of the bridge itself. `take`: the front's way of plain calls.
        """
        self._take = take
        self._known: dict[int, tuple[Ask, _LinkExchange]] = {}
        """The latest exchange of each of some heads, by the identity of the head: see `read_ask`."""
        self._answer, self._gives_up, self._hand_on, self._order = answer, gives_up, hand_on, order

    async def serve(self, served: Served) -> None:
        """Answer one request."""
        body = await served.body()
        if body is None:
            return
        if served.is_order:
            await self._order(served, body)
            return
        head = served.head
        id_ = dict(head.headers).get(b"mcp-session-id", b"").strip()
        if id_ and not head.guest and self._gives_up(id_):
            await self._hand_on(id_)
            served.reply_whole(Reply(MOVED_STATUS, []), b"")
            return
        exchange = _exchange_of(served, body)
        await self._answer(exchange)
        exchange.end()

    def forget_heads(self) -> None:
        """Another front answers from now on, by its own rules."""
        self._known.clear()

    def take(self, served: Served) -> bool:
        """Answer a plain call without a task. False: nothing was done."""
        body = served.body_now
        if body is None or served.is_order or served.head.guest or served.head.method != "POST":
            return False
        head = served.head
        former = self._known.get(id(head))
        if former is not None and former[0] is head:
            exchange = former[1].again(served, body)
        else:
            exchange = _exchange_of(served, body)
        if self._gives_up(exchange.headers.get(b"mcp-session-id", b"").strip()):
            return False
        served.on_left = exchange.client_left
        if self._take(exchange):
            if len(self._known) >= _KNOWN_HEADS:
                self._known.clear()
            self._known[id(head)] = head, exchange
            return True
        served.on_left = _nothing
        return False


def _nothing() -> None:
    pass


class _LinkExchange(DirectExchange):
    """A request that came by way of another bridge."""

    __slots__ = ("_ask", "_sending", "_served", "_whole")

    def __init__(self, served: Served, body: bytes) -> None:
        head = self._ask = served.head
        headers = [one for one in head.headers if one[0] not in HOP_BY_HOP]
        headers.append((b"content-length", b"%d" % len(body)))
        self._begin(head.method, head.path, head.query, headers)
        self.admission = None
        self._take(served, body)

    def _take(self, served: Served, body: bytes) -> None:
        self._served, self._whole = served, body
        self._sending: _Sending | None = None
        self._receive, self._send = _Receiving(served, body).receive, self._send_part
        self.express, self.is_forwarded = None, True

    def again(self, served: Served, body: bytes) -> "_LinkExchange":
        """The next request that has the same head."""
        exchange = _LinkExchange.__new__(_LinkExchange)  # what is read from the head is not read again
        exchange._begin_again(self)  # noqa: SLF001 - its own
        exchange._ask, exchange.admission = self._ask, self.admission  # noqa: SLF001 - its own
        exchange._take(served, body)  # noqa: SLF001 - its own
        return exchange

    @property
    def peer(self) -> str:
        """See `Exchange.peer`: the address that the bridge which asks has seen."""
        return self._ask.peer

    @property
    def scope(self) -> MutableMapping[str, Any]:
        """See `Exchange.scope`."""
        head = self._ask
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http",
            "method": head.method,
            "root_path": "",
            "path": head.path,
            "raw_path": head.path.encode(),
            "query_string": head.query,
            "headers": self.raw_headers,
            "client": (head.peer, 0) if head.peer else None,
            "server": None,
            "state": {},
        }

    @property
    def whole_body(self) -> bytes:
        """See `DirectExchange`."""
        return self._whole

    def client_left(self) -> None:
        """The client is gone, or the bridge that asked."""
        if self.express is not None:
            self.express.continue_call()

    def send_now(self, data: bytes, headers: Headers = NO_HEADERS) -> None:
        """See `DirectExchange`."""
        if len(data) > PART:
            self.run(self.send_json(data, headers=headers))
            return
        reply = Reply(200, [JSON, *headers, *self.extra]) if headers or self.extra else _PLAIN_REPLY
        self._served.reply_whole(reply, data)
        self._served.over()

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """See `DirectExchange`."""
        return self._served.run(self._to_its_end(work))

    def end(self) -> None:
        """Nothing more comes."""
        if self._sending is None:
            self._sending = _Sending(self._served)
        self._sending.end()

    async def _send_part(self, message: MutableMapping[str, Any]) -> None:
        if self._sending is None:
            self._sending = _Sending(self._served)
        await self._sending.send(message)

    async def _to_its_end(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
            self.end()
        except BaseException:
            self._served.fail()
            raise
        finally:
            work.close()
            self._served.over()


def _exchange_of(served: Served, body: bytes) -> _LinkExchange:
    exchange = _LinkExchange(served, body)
    exchange.guest = [decode_frame(message) for message in served.head.guest]
    return exchange


class _Receiving:
    def __init__(self, served: Served, body: bytes) -> None:
        self._served, self._body, self._is_told = served, body, False

    async def receive(self) -> MutableMapping[str, Any]:
        if not self._is_told:
            self._is_told = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._served.until_left()
        return {"type": "http.disconnect"}


class _Sending:
    """The head waits until the first part of the body is there, or the loop's next turn: most answers are one frame."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._head: Reply | None = None
        self._timer: asyncio.Handle | None = None
        self._is_over = False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
            self._head = Reply(message["status"], headers)
            self._timer = asyncio.get_running_loop().call_soon(self._begin)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._head is not None and not more:
            self._is_over = True
            head, self._head = self._head, None
            if len(body) <= PART:
                self._served.reply_whole(head, body)
                return
            self._served.reply(head)
        else:
            self._begin()
        if body:
            await self._served.write(body)
        if not more:
            self._is_over = True
            self._served.end()

    def end(self) -> None:
        """Nothing more comes."""
        if not self._is_over:
            self._begin()
            self._served.end()

    def _begin(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self._served.reply(head)
