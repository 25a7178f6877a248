"""A client of any revision on any wire, with nothing of a library in it: it sends frames and keeps what arrives.

It can be asked whatever its revision knows of, and answers by itself: real requests in the handshake era, the rounds of
an `input_required` result in the modern one.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from matrix.cells import MODERN
from matrix.wires import Message, Wire
from support.rpc import Refused

__all__ = ["CAPABILITIES", "Client"]

_PREFIX = "io.modelcontextprotocol/"

_ALWAYS: Message = {"roots": {}, "sampling": {}}
CAPABILITIES: dict[str, Message] = {
    "2024-11-05": _ALWAYS,
    "2025-03-26": _ALWAYS,
    "2025-06-18": {**_ALWAYS, "elicitation": {}},
    "2025-11-25": {**_ALWAYS, "elicitation": {"form": {}, "url": {}}},
    MODERN: {**_ALWAYS, "elicitation": {"form": {}, "url": {}}},
}
"""All that a client of a revision can be asked."""

_ROUNDS = 10


class Client:
    """One client."""

    def __init__(self, wire: Wire, revision: str) -> None:
        self.wire = wire
        self.revision = revision
        self.is_modern = revision == MODERN
        self.arrived: list[Message] = []
        """Notifications and requests of the bridge, in order."""
        self.asked: list[Message] = []
        """What it was asked, in either way."""
        self._news = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._last_id = 0
        self._answers: set[asyncio.Task[None]] = set()
        wire.take = self._take_or_fail

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Client"]:
        """Connect, and agree with the bridge on the revision."""
        async with self.wire.running():
            if self.is_modern:
                found = await self.request("server/discover", {})
                assert self.revision in found["supportedVersions"], found
            else:
                await self._shake_hands()
            yield self

    async def _shake_hands(self) -> None:
        info = {"name": "matrix", "version": "1"}
        capabilities = CAPABILITIES[self.revision]
        params = {"protocolVersion": self.revision, "capabilities": capabilities, "clientInfo": info}
        agreed = await self.request("initialize", params)
        assert agreed["protocolVersion"] == self.revision, agreed
        self.wire.session["mcp-protocol-version"] = self.revision
        await self.tell("notifications/initialized")
        await self.wire.listen()

    # -- asking

    def begin(self, method: str, params: Message, **meta: Any) -> int:
        """Send a request later on; returns its id. `answer` waits for what comes of it."""
        self._last_id += 1
        id_ = self._last_id
        self._waiting[id_] = asyncio.get_running_loop().create_future()
        given = {**params, "_meta": self._meta(**meta)} if self.is_modern or meta else params
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": given}
        task = asyncio.create_task(self._send(id_, message))
        self._keep(task)
        return id_

    async def answer(self, id_: int, within: float = 60.0) -> Message:
        """The result.

        Raises:
            Refused: it is an error.
        """
        try:
            async with asyncio.timeout(within):
                message = await self._waiting[id_]
        except TimeoutError:
            raise AssertionError(f"no answer within {within:g} s; asked meanwhile: {self.asked[-3:]}") from None
        finally:
            self._waiting.pop(id_, None)
        if "error" in message:
            raise Refused(message["error"])
        return message["result"]

    async def request(self, method: str, params: Message, within: float = 60.0, **meta: Any) -> Message:
        """Ask, answer what is asked back, and wait for the result."""
        given = dict(params)
        for _ in range(_ROUNDS):
            result = await self.answer(self.begin(method, given, **meta), within)
            if result.get("resultType") != "input_required":
                return result
            assert self.is_modern, f"only a modern client may get this: {result}"
            asked = result.get("inputRequests") or {}
            given = {**params, "inputResponses": {key: self._reply(question) for key, question in asked.items()}}
            if "requestState" in result:
                given["requestState"] = result["requestState"]
        raise AssertionError(f"asked more than {_ROUNDS} times")

    async def call(self, tool: str, within: float = 60.0, meta: Message | None = None, **arguments: Any) -> Message:
        """Call a tool."""
        return await self.request("tools/call", {"name": tool, "arguments": arguments}, within, **(meta or {}))

    async def everything(self, method: str, key: str) -> list[Message]:
        """All pages of a list."""
        items: list[Message] = []
        params: Message = {}
        while True:
            page = await self.request(method, params)
            items += page[key]
            if page.get("nextCursor") is None:
                return items
            params = {"cursor": page["nextCursor"]}

    async def tell(self, method: str, **params: Any) -> None:
        """Send a notification."""
        await self.wire.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def cancel(self, id_: int) -> None:
        """Withdraw a request."""
        await self.wire.cancel(id_, modern=self.is_modern)

    def _meta(self, **meta: Any) -> Message:
        own = {
            _PREFIX + "protocolVersion": self.revision,
            _PREFIX + "clientCapabilities": CAPABILITIES[self.revision],
            _PREFIX + "clientInfo": {"name": "matrix", "version": "1"},
        }
        return {**own, **meta} if self.is_modern else meta

    async def _send(self, id_: int, message: Message) -> None:
        try:
            await self.wire.send(message)
        except Exception as error:  # noqa: BLE001 - whoever waits for the answer is told
            waiting = self._waiting.get(id_)
            if waiting is not None and not waiting.done():
                waiting.set_exception(error)

    # -- hearing

    async def hear(self, method: str, where: Callable[[Message], bool], within: float = 60.0) -> Message:
        """The params of the first notification of that kind, now or later."""
        try:
            async with asyncio.timeout(within):
                while True:
                    self._news.clear()
                    for message in self.arrived:
                        if message.get("method") == method and where(message.get("params") or {}):
                            return message.get("params") or {}
                    await self._news.wait()
        except TimeoutError:
            came = [message.get("method") for message in self.arrived]
            raise AssertionError(f"no {method} within {within:g} s; came: {came[-8:]}") from None

    def _take_or_fail(self, message: Message) -> None:
        try:
            self._take(message)
        except AssertionError as error:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(error)

    def _take(self, message: Message) -> None:
        if "method" not in message:
            waiting = self._waiting.get(message["id"])
            assert waiting is not None, f"an answer to nothing: {json.dumps(message)[:300]}"
            if not waiting.done():
                waiting.set_result(message)
            return
        self.arrived.append(message)
        self._news.set()
        if "id" in message:
            assert not self.is_modern, f"a modern client must not be sent requests: {message}"
            reply = {"jsonrpc": "2.0", "id": message["id"]}
            reply |= {"result": {}} if message["method"] == "ping" else {"result": self._reply(message)}
            self._keep(asyncio.create_task(self.wire.send(reply)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    def _reply(self, question: Message) -> Message:
        """What a person, a model and a program answer here."""
        self.asked.append(copy.deepcopy(question))
        match question["method"]:
            case "elicitation/create" if question["params"].get("mode") == "url":
                return {"action": "accept"}
            case "elicitation/create":
                return {"action": "accept", "content": {"name": "Ada"}}
            case "sampling/createMessage":
                return {"role": "assistant", "model": "none", "content": {"type": "text", "text": "It is a bridge."}}
            case "roots/list":
                return {"roots": [{"uri": "file:///matrix"}]}
            case unknown:
                raise AssertionError(f"asked for {unknown}")
