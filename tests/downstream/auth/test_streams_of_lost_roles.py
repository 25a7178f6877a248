"""What somebody has open ends with the last role; with one of several, the lists change (issue 23)."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import websockets
from websockets.asyncio.client import connect

from mcpbridge.config.schema import Settings
from mcpbridge.library.access import take_role
from support.harness import python_server
from support.team import MODERN, Team, team
from support.token_issuer import Issuer, issuing

RESOURCE = "http://127.0.0.1:1/mcp"
ROLES: list[dict[str, Any]] = [
    {"name": "plain", "groups": "plain", "servers": ["plain"]},
    {"name": "rich", "groups": "rich", "servers": ["rich"]},
    {"name": "emergency", "groups": "oncall", "servers": ["plain"], "break_glass": True},
]
FRONTS = ("http", "sse", "websocket", "listen")
CHANGED = "notifications/tools/list_changed"


class Open:
    """A stream or a WebSocket of Ann's."""

    def __init__(self) -> None:
        self.heard = asyncio.Queue[dict[str, Any]]()
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Set when the bridge has ended it: to what it says of that."""

    async def hears(self, method: str) -> None:
        async with asyncio.timeout(30):
            while (await self.heard.get()).get("method") != method:
                pass


def message(method: str, **params: Any) -> dict[str, Any]:
    id_ = {} if method.startswith("notifications/") else {"id": method}
    return {"jsonrpc": "2.0", **id_, "method": method, "params": params}


BEGIN = (
    message("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "probe", "version": "1"}),
    message("notifications/initialized"),
)


@asynccontextmanager
async def opened(front: str, members: Team, token: str) -> AsyncIterator[Open]:
    """One that has begun, and is notified of changes."""
    stream = Open()
    opening: dict[str, Callable[[], Awaitable[str]]] = {
        "http": lambda: _over_http(members, token, stream, began),
        "sse": lambda: _over_sse(members, token, stream, began),
        "websocket": lambda: _over_websocket(members, token, stream, began),
        "listen": lambda: _listening(members, token, stream, began),
    }
    began = asyncio.Event()

    async def run() -> None:
        try:
            stream.over.set_result(await opening[front]())
        except Exception as error:  # noqa: BLE001 - the test has it
            began.set()
            stream.over.set_exception(error)

    running = asyncio.ensure_future(run())
    try:
        async with asyncio.timeout(30):
            await began.wait()
        yield stream
    finally:
        running.cancel()
        await asyncio.wait([running])


async def _events(response: httpx2.Response, stream: Open, event: Callable[[str], Awaitable[None]]) -> None:
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            if line.startswith("data: {"):
                stream.heard.put_nowait(json.loads(line[6:]))
            await event(line[6:])


async def _over_http(members: Team, token: str, stream: Open, began: asyncio.Event) -> str:
    url, headers = f"{members.origin}/mcp", {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(trust_env=False, timeout=120, headers=headers) as http:
        accept = {"accept": "application/json, text/event-stream"}
        answer = await http.post(url, json=BEGIN[0], headers=accept)
        session = {"mcp-session-id": answer.headers["mcp-session-id"]}
        await http.post(url, json=BEGIN[1], headers=accept | session)
        async with http.stream("GET", url, headers={"accept": "text/event-stream", **session}) as response:
            assert response.status_code == 200
            began.set()

            async def nothing(_: str) -> None: ...

            await _events(response, stream, nothing)
        gone = await http.post(url, json=message("ping"), headers=accept | session)
        return f"{gone.status_code} {gone.json()['error']['message']}"


async def _over_sse(members: Team, token: str, stream: Open, began: asyncio.Event) -> str:
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(trust_env=False, timeout=120, headers=headers) as http:
        where = ""

        async def event(data: str) -> None:
            nonlocal where
            if data.startswith("/"):
                where = f"{members.origin}{data}"
                await http.post(where, json=BEGIN[0])
            elif "protocolVersion" in data:
                await http.post(where, json=BEGIN[1])
                await http.post(where, json=message("ping"))
            elif '"ping"' in data:
                began.set()

        async with http.stream("GET", f"{members.origin}/sse", headers={"accept": "text/event-stream"}) as response:
            await _events(response, stream, event)
        gone = await http.post(where, json=message("ping"))
        return f"{gone.status_code} {gone.json()['error']['message']}"


async def _over_websocket(members: Team, token: str, stream: Open, began: asyncio.Event) -> str:
    url = members.origin.replace("http", "ws", 1) + "/ws"
    headers = {"authorization": f"Bearer {token}"}
    subprotocols = [websockets.Subprotocol("mcp")]
    async with connect(url, subprotocols=subprotocols, additional_headers=headers, proxy=None) as socket:
        await socket.send(json.dumps(BEGIN[0]))
        await socket.recv()
        await socket.send(json.dumps(BEGIN[1]))
        await socket.send(json.dumps(message("ping")))
        with contextlib.suppress(websockets.ConnectionClosed):
            async for data in socket:
                arrived = json.loads(data)
                if arrived.get("id") == "ping":
                    began.set()
                stream.heard.put_nowait(arrived)
        return f"{socket.close_code} {socket.close_reason}"


async def _listening(members: Team, token: str, stream: Open, began: asyncio.Event) -> str:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "probe", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = message("subscriptions/listen", notifications={"toolsListChanged": True}, _meta=meta)
    headers = {
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {token}",
        "mcp-protocol-version": MODERN,
        "mcp-method": "subscriptions/listen",
    }
    async with (
        httpx2.AsyncClient(trust_env=False, timeout=120) as http,
        http.stream("POST", f"{members.origin}/mcp", json=body, headers=headers) as response,
    ):
        last = ""

        async def event(data: str) -> None:
            nonlocal last
            last = data
            if "acknowledged" in data:
                began.set()

        await _events(response, stream, event)
        return json.loads(last)["result"]["resultType"]


ENDS = {
    "http": "404 This session is unknown or over; initialize a new one",
    "sse": "404 This session is unknown or over; open a new stream",
    "websocket": "3003 the roles of its user were taken away",
    "listen": "complete",
}


@asynccontextmanager
async def place() -> AsyncIterator[tuple[Issuer, Team]]:
    servers = {"plain": python_server("plain"), "rich": python_server("rich")}
    async with (
        asyncio.timeout(180),
        issuing() as issuer,
        team(servers, "service", auth=issuer.settings(resource=RESOURCE), roles=ROLES) as members,
    ):
        issuer.resource = RESOURCE
        await members.bridge.settled(60)
        yield issuer, members


async def has_roles(members: Team, issuer: Issuer, *groups: str, client_id: str = "one") -> None:
    """Ann comes with a newer token, which says this of her."""
    member = members["service"]
    member.token = issuer.token(client_id=client_id, groups=list(groups), jti=f"{client_id} {groups}")
    await member.ask("tools/list")


@pytest.mark.parametrize("front", FRONTS)
async def test_what_is_open_ends_when_a_newer_token_leaves_no_role(front: str) -> None:
    async with place() as (issuer, members), opened(front, members, _token(issuer, "plain", "rich")) as stream:
        await has_roles(members, issuer, "plain")
        await stream.hears(CHANGED)
        await has_roles(members, issuer, client_id="two")
        await has_roles(members, issuer, "plain", "rich")
        await stream.hears(CHANGED)
        assert not stream.over.done(), "what another client's token says is about that one"
        await has_roles(members, issuer, "sales")
        assert await asyncio.wait_for(stream.over, 30) == ENDS[front]


@pytest.mark.parametrize("front", FRONTS)
async def test_what_is_open_ends_when_the_settings_leave_no_role(front: str) -> None:
    async with place() as (issuer, members), opened(front, members, _token(issuer, "plain", "rich")) as stream:
        for roles in (ROLES[:1], ROLES[2:]):
            assert not stream.over.done()
            kept = Settings.model_validate({"roles": roles}).roles
            await members.bridge.reload(members.bridge.settings.model_copy(update={"roles": kept}))
            if roles == ROLES[:1]:
                await stream.hears(CHANGED)
        assert await asyncio.wait_for(stream.over, 30) == ENDS[front]


@pytest.mark.parametrize("front", FRONTS)
async def test_what_is_open_ends_with_the_role_of_an_emergency(front: str) -> None:
    """Whoever had no role before keeps a stream, which says when there is one."""
    async with place() as (issuer, members), opened(front, members, _token(issuer, "oncall")) as stream:
        ann = f"{issuer.url}#ann"
        take_role(members.bridge, ann, "emergency", "the site is down", 60, "test")
        await stream.hears(CHANGED)
        assert not stream.over.done()
        assert members.bridge.policy.roles is not None
        assert members.bridge.policy.roles.break_glass.give_back(ann, "emergency")
        members.bridge.server.roles_changed(ann)  # as when its time is over
        assert await asyncio.wait_for(stream.over, 30) == ENDS[front]


def _token(issuer: Issuer, *groups: str) -> str:
    return issuer.token(client_id="one", groups=list(groups), jti="first")
