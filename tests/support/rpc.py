"""JSON-RPC clients that do nothing by themselves: over the bridge's standard streams, and over HTTP.

They keep what arrives, as bytes too, so that a test can see what really crossed.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

import httpx2

__all__ = ["MODERN", "Client", "HttpClient", "Message", "Refused", "Reply", "StdioClient", "envelope"]

Message = dict[str, Any]

MODERN = "2026-07-28"


class Refused(Exception):
    """The bridge answered with a JSON-RPC error."""

    def __init__(self, error: Message) -> None:
        super().__init__(json.dumps(error))
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


@dataclass(frozen=True)
class Reply:
    """The answer to one request."""

    raw: bytes
    message: Message

    @property
    def result(self) -> Message:
        """The result.

        Raises:
            Refused: it is an error.
        """
        if "error" in self.message:
            raise Refused(self.message["error"])
        return self.message["result"]

    @property
    def text(self) -> str:
        """The texts of a tool result, an `isError` one too."""
        return "\n".join(part["text"] for part in self.result["content"] if part["type"] == "text")

    @property
    def failed(self) -> bool:
        """Whether this is a tool result that tells of a failure."""
        return bool(self.result.get("isError"))


class Log(Protocol):
    """Where a client finds out what the bridge had to say when something is missing."""

    def told(self) -> str: ...


def envelope(**meta: Any) -> Message:
    """The `_meta` of a modern request."""
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        **meta,
    }


class Client:
    """What both clients share: ids, what arrived, and the requests that tests need most."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.arrived: list[Message] = []
        """Notifications and requests of the bridge, in order."""
        self._news = asyncio.Event()
        self._last_id = 0

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    async def exchange(self, message: Message, within: float) -> Reply:
        """Send a request and wait for its answer."""
        raise NotImplementedError

    async def tell(self, method: str, **params: Any) -> None:
        """Send a notification."""
        raise NotImplementedError

    async def request(self, method: str, params: Message | None = None, *, within: float = 15.0) -> Reply:
        """Ask, and wait for the answer."""
        message = {"jsonrpc": "2.0", "id": self.next_id(), "method": method}
        return await self.exchange(message if params is None else {**message, "params": params}, within)

    async def initialize(self, version: str = "2025-11-25", **capabilities: Any) -> Message:
        """The handshake."""
        info = {"name": "raw", "version": "1"}
        params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info}
        result = (await self.request("initialize", params, within=60)).result
        self.initialized(result)
        await self.tell("notifications/initialized")
        return result

    def initialized(self, result: Message) -> None:
        """The answer to `initialize` came."""

    async def call(self, tool: str, *, within: float = 15.0, meta: Message | None = None, **arguments: Any) -> Reply:
        """Call a tool."""
        params: Message = {"name": tool, "arguments": arguments}
        return await self.request("tools/call", params if meta is None else {**params, "_meta": meta}, within=within)

    async def tools(self) -> list[str]:
        """The names of the tools listed now."""
        return [tool["name"] for tool in (await self.request("tools/list", {})).result["tools"]]

    async def tools_with(self, name: str, within: float = 60.0) -> list[str]:
        """The names of the tools as soon as `name` is among them, listed anew whenever the bridge says so."""
        seen = 0
        while name not in (tools := await self.tools()):
            found = await self.notice("notifications/tools/list_changed", after=seen, within=within)
            seen = self.arrived.index(found, seen) + 1
        return tools

    async def notice(
        self, method: str, where: Callable[[Message], bool] = lambda _: True, *, after: int = 0, within: float = 30.0
    ) -> Message:
        """The first message with this method, now or later, at or after a place in `arrived`."""
        try:
            async with asyncio.timeout(within):
                while True:
                    self._news.clear()
                    for message in self.arrived[after:]:
                        if message.get("method") == method and where(message.get("params") or {}):
                            return message
                    await self._news.wait()
        except TimeoutError:
            said = f"came: {self.arrived}\nlog:\n{self.log.told()}"
            raise AssertionError(f"no {method} within {within:g} s; {said}") from None

    async def arrival(self, seen: int) -> None:
        """Return when more than `seen` messages have arrived."""
        while len(self.arrived) <= seen:
            self._news.clear()
            await self._news.wait()

    def take(self, message: Message) -> None:
        """Keep a message that answers nothing."""
        self.arrived.append(message)
        self._news.set()


class StdioClient(Client):
    """A client on the bridge's standard input and output."""

    def __init__(self, output: asyncio.StreamReader, input_: asyncio.StreamWriter, command: Any) -> None:
        super().__init__(command)
        self.command = command
        self.unreadable: list[bytes] = []
        """Lines that are no JSON-RPC messages, which must not be."""
        self._output, self._input = output, input_
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._batches = asyncio.Queue[list[Message]]()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Take in what the bridge sends."""
        task = asyncio.create_task(self._read())
        try:
            yield
            assert not self.unreadable, f"the bridge wrote what is no message: {self.unreadable}"
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _read(self) -> None:
        async for line in self._output:
            try:
                message = json.loads(line, parse_int=_number)
                if isinstance(message, list):
                    self._batches.put_nowait(message)
                    continue
                assert message["jsonrpc"] == "2.0"
            except (ValueError, TypeError, KeyError, AssertionError):
                self.unreadable.append(line)
                continue
            if "method" in message:
                self.take(message)
            else:
                waiting = self._waiting.get(json.dumps(message.get("id")))
                if waiting is None or waiting.done():
                    self.unreadable.append(line)  # an answer to nothing, or a second one
                else:
                    waiting.set_result(Reply(line.rstrip(b"\n"), message))
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError(f"the bridge closed its output; its log:\n{self.log.told()}"))

    async def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._input.write(data)
        await self._input.drain()

    async def close(self) -> None:
        """Go away: the bridge reads the end of its input."""
        self._input.close()

    def expect(self, id_: Any) -> asyncio.Future[Reply]:
        """The answer to the request with this id, to come."""
        return self._waiting.setdefault(json.dumps(id_), asyncio.get_running_loop().create_future())

    def forget(self, id_: Any) -> None:
        """Let an id be used again."""
        self._waiting.pop(json.dumps(id_), None)

    async def batch(self, within: float = 15.0) -> list[Message]:
        """The next array of answers."""
        async with asyncio.timeout(within):
            return await self._batches.get()

    async def answer_to(self, id_: Any, within: float = 15.0) -> Reply:
        """The answer to a request that was sent with `write`."""
        waiting = self.expect(id_)
        try:
            async with asyncio.timeout(within):
                return await waiting
        except TimeoutError:
            raise AssertionError(f"no answer to {id_!r} in {within:g} s; the log:\n{self.log.told()}") from None
        finally:
            if waiting.cancelled():
                del self._waiting[json.dumps(id_)]

    async def exchange(self, message: Message, within: float) -> Reply:
        self.expect(message["id"])
        await self.write(json.dumps(message).encode() + b"\n")
        return await self.answer_to(message["id"], within)

    async def tell(self, method: str, **params: Any) -> None:
        await self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")


class HttpClient(Client):
    """A client of the streamable HTTP front."""

    def __init__(self, url: str, command: Any) -> None:
        super().__init__(command)
        self.command = command
        self.url = url
        self.session: dict[str, str] = {}
        """Headers that the session asks for."""
        self.http = httpx2.AsyncClient(timeout=60, trust_env=False)
        self._is_listening = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.http.aclose()

    def headers(self, message: Message) -> dict[str, str]:
        """The headers of a message; a modern one mirrors its routing fields."""
        plain = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        params = message.get("params") or {}
        version = (params.get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion")
        if version is None:
            return {**plain, **self.session}
        name = params.get("name") or params.get("uri") or params.get("taskId")
        mirrored = {"mcp-protocol-version": version, "mcp-method": message["method"]}
        return {**plain, **mirrored, **({"mcp-name": name} if name else {})}

    async def exchange(self, message: Message, within: float) -> Reply:
        try:
            async with asyncio.timeout(within):
                return await self._post(message)
        except TimeoutError:
            raise AssertionError(f"no answer to {message} in {within:g} s; the log:\n{self.log.told()}") from None

    async def _post(self, message: Message) -> Reply:
        body = json.dumps(message).encode()
        async with self.http.stream("POST", self.url, content=body, headers=self.headers(message)) as response:
            if "mcp-session-id" in response.headers:
                self.session["mcp-session-id"] = response.headers["mcp-session-id"]
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raw = await response.aread()
                assert raw, f"HTTP {response.status_code} without a body"
                return Reply(raw, json.loads(raw, parse_int=_number))
            async for line in response.aiter_lines():
                if line.startswith("data:") and (raw := line[5:].strip()):
                    arrived = json.loads(raw, parse_int=_number)
                    if arrived.get("id") == message["id"] and "method" not in arrived:
                        return Reply(raw.encode(), arrived)
                    self.take(arrived)
        raise AssertionError(f"the stream ended without the answer to {message}")

    def initialized(self, result: Message) -> None:
        self.session["mcp-protocol-version"] = result["protocolVersion"]

    async def tell(self, method: str, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        response = await self.http.post(self.url, json=message, headers=self.headers(message))
        assert response.status_code == 202, response.text

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Hold the session's GET stream open, for unsolicited messages."""
        headers = {"accept": "text/event-stream", **self.session}
        async with self.http.stream("GET", self.url, headers=headers) as response:
            assert response.status_code == 200, await response.aread()

            async def read() -> None:
                async for line in response.aiter_lines():
                    if line.startswith("data:") and line[5:].strip():
                        self.take(json.loads(line[5:]))

            task = asyncio.create_task(read())
            self._is_listening = True
            try:
                yield
            finally:
                self._is_listening = False
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def tools_with(self, name: str, within: float = 60.0) -> list[str]:
        """As ever with a stream for unsolicited messages. Without one nothing tells of changes: they are looked for."""
        if self._is_listening:
            return await super().tools_with(name, within)
        try:
            async with asyncio.timeout(within):
                while name not in (tools := await self.tools()):
                    await asyncio.sleep(0.05)
                return tools
        except TimeoutError:
            raise AssertionError(f"no {name} within {within:g} s; the log:\n{self.log.told()}") from None


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) < 1000 else digits  # Python refuses to read more than 4,300 digits
