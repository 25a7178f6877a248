"""The HTTP front on a real socket, with a core behind it that does what a test says.

The core stands in for `downstream.server.Server`: here it is the front that is tested, and the tests need to decide
when an answer is ready and what is said before it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec

from mcpbridge.core.identity import Identity
from mcpbridge.downstream.client import Answer, Client, Notify
from mcpbridge.downstream.http.server import bind_port, serve_http
from mcpbridge.downstream.settings import HttpSettings, ResourceServerSettings
from mcpbridge.protocol.jsonrpc import Frame, encode_error, encode_notification, encode_response

BOTH = "application/json, text/event-stream"
JSON = {"content-type": "application/json", "accept": BOTH}
MODERN = "2026-07-28"
LEGACY = "2025-06-18"

Message = dict[str, Any]


class ScriptedCore:
    """Methods are scripts.

    `echo`, `say` (notifications, then the answer), `hold` (until `release`), `tell` (say one, then hold), `fail`.
    """

    views = ("files", "mail")
    backends = ("tasks",)
    profiles = ("coding",)

    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.closed: list[Client] = []
        self.asked: list[tuple[Client, str]] = []
        self.notified: list[str] = []
        self.answers: list[tuple[Client, bytes]] = []
        """Answers of clients to requests of the bridge: who, and the id."""
        self.lost: list[tuple[Client, bytes]] = []
        """Requests whose answers have no way to their clients: whose, and the id."""
        self.held: asyncio.Queue[Notify] = asyncio.Queue()
        """One entry for each `hold` that began: how to say something before its answer."""
        self.release = asyncio.Event()
        self.cancelled: asyncio.Queue[str] = asyncio.Queue()
        """Ids of requests whose answering was cancelled."""

    express = None

    def restriction_of(self, principal: str, identity: Identity | None) -> None:
        """Nobody is kept to roles."""

    def newer_token(self, identity: Identity) -> None:
        """Nor is anything open judged anew."""

    def open(self, client: Client) -> None:
        self.clients.append(client)

    async def came_over(self, client: Client) -> None:
        pass

    def introduced(self, client: Client, revision: str) -> None:
        pass

    def close(self, client: Client, why: str = "") -> None:
        self.closed.append(client)

    def notification(self, client: Client, frame: Frame) -> None:
        self.notified.append(frame.method)

    def unheard(self, client: Client, frame: Frame) -> None:
        self.lost.append((client, bytes(frame.id)))

    def answered(self, client: Client, frame: Frame) -> None:
        self.answers.append((client, bytes(frame.id)))

    async def answer(
        self, client: Client, frame: Frame, notify: Notify, *, cancel_as: Client | None = None, sent: object = None
    ) -> Answer:
        self.asked.append((client, frame.method))
        params: Message = msgspec.json.decode(frame.params) if frame.params else {}
        match frame.method:
            case "initialize":
                if "protocolVersion" not in params:
                    return Answer(encode_error(frame.id, -32602, "no version"), -32602)
                client.version = params["protocolVersion"]
                result = {"protocolVersion": client.version, "capabilities": {}, "serverInfo": {"name": "x"}}
                return Answer(encode_response(frame.id, json.dumps(result).encode()))
            case "say":
                for number in range(params["times"]):
                    notify(said(number))
            case "hold" | "tell" | "subscriptions/listen":
                self.held.put_nowait(notify)
                if frame.method != "hold":
                    notify(said(0))
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    self.cancelled.put_nowait(bytes(frame.id).decode())
                    raise
            case "fail":
                return Answer(encode_error(frame.id, params["code"], "failed"), params["code"])
            case "withdrawn":
                return Answer(b"")
            case _:
                pass
        return Answer(encode_response(frame.id, frame.params or b"{}"))


class ScriptedBridge:
    """What `serve_http` needs of a bridge."""

    def __init__(self, core: ScriptedCore) -> None:
        self.server = core
        self.has_settled = True

    def status(self) -> Mapping[str, Any]:
        down = {"name": "b", "state": "failed", "reason": "exit code 1: token=hunter2"}
        return {"servers": [{"name": "a", "state": "ready"}, down]}


def said(number: int) -> bytes:
    return encode_notification("notifications/message", b'{"data":%d}' % number)


def request(method: str, id_: int | str = 1, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def events(text: str) -> list[tuple[str, str]]:
    """(id, data) of each event in a stream; comments are left out."""
    found: list[tuple[str, str]] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if fields:
            found.append((fields.get("id", ""), fields["data"]))
    return found


class Http:
    """A client of the front that adds nothing by itself."""

    def __init__(
        self,
        url: str,
        client: httpx2.AsyncClient,
        core: ScriptedCore,
        front: asyncio.Task[None],
        bridge: ScriptedBridge,
    ) -> None:
        self.url = url
        self.bridge = bridge
        self.front = front
        self.root = url.removesuffix("/mcp")
        self.client = client
        self.core = core

    async def post(self, message: Any, **headers: str) -> httpx2.Response:
        return await self.client.post(self.url, content=as_bytes(message), headers=JSON | named(headers))

    def stream(self, method: str, message: Any = None, **headers: str) -> Any:
        content = None if message is None else as_bytes(message)
        return self.client.stream(method, self.url, content=content, headers=JSON | named(headers))

    async def get(self, **headers: str) -> httpx2.Response:
        return await self.client.get(self.url, headers={"accept": "text/event-stream"} | named(headers))

    async def delete(self, **headers: str) -> httpx2.Response:
        return await self.client.delete(self.url, headers=named(headers))

    async def session(self, version: str = LEGACY, **headers: str) -> dict[str, str]:
        """Open a legacy session; returns the headers that name it."""
        response = await self.post(request("initialize", protocolVersion=version, capabilities={}), **headers)
        assert response.status_code == 200, response.text
        return {"mcp_session_id": response.headers["mcp-session-id"], "mcp_protocol_version": version} | headers

    async def modern(self, method: str, id_: int | str = 1, *, meta: Message | None = None, **params: Any) -> Any:
        """A modern request whose headers agree with its body."""
        return await self.post(modern_body(method, id_, meta=meta, **params), **modern_headers(method, params))


def modern_body(method: str, id_: int | str = 1, *, meta: Message | None = None, **params: Any) -> Message:
    declared = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    }
    return request(method, id_, **params, _meta=declared | (meta or {}))


def modern_headers(method: str, params: Message) -> dict[str, str]:
    headers = {"mcp_protocol_version": MODERN, "mcp_method": method}
    name = params.get("name") or params.get("uri")
    return headers | ({"mcp_name": name} if name else {})


def as_bytes(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


def named(headers: dict[str, str]) -> dict[str, str]:
    """Keyword arguments as header names."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


@asynccontextmanager
async def serving(
    settings: HttpSettings | None = None,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    no_auth: bool = True,
    oauth: ResourceServerSettings | None = None,
    mounts: Mapping[str, Any] | None = None,
) -> AsyncIterator[Http]:
    """The front on a free port, and a client for it."""
    core = ScriptedCore()
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    settings = settings or HttpSettings()
    bridge = ScriptedBridge(core)
    with bind_port(settings, host=host, port=0, token=token, no_auth=no_auth, oauth=oauth) as at:
        front = asyncio.create_task(serve_http(bridge, settings, at, on_ready=ready.set_result, mounts=mounts or {}))
        await asyncio.wait([front, ready], return_when=asyncio.FIRST_COMPLETED)
        if front.done():
            await front
        try:
            async with asyncio.timeout(60), httpx2.AsyncClient(trust_env=False, timeout=60) as client:
                yield Http(ready.result(), client, core, front, bridge)
        finally:
            core.release.set()
            front.cancel()
            await asyncio.wait([front])
