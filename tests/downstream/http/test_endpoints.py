"""Endpoints of single servers: their paths, what is seen there, and that sessions do not wander between them."""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcpbridge.downstream.http.exchange import Endpoint, Refused
from mcpbridge.downstream.http.routes import Routes
from mcpbridge.downstream.settings import HttpSettings, TokenSettings
from support.front_clients import FRONTS, OpenFront, http_server, open_front
from support.http_front import JSON, ScriptedBridge, ScriptedCore, modern_body, modern_headers, named, request
from support.in_process_bridge import BridgeToScripts, bridged
from support.rpc import Refused as AnswerRefused
from support.rpc import envelope
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

Message = dict[str, Any]

RICH = {
    **LEGACY_SERVER,
    "initialize": {
        **LEGACY_SERVER["initialize"],
        "capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {"subscribe": True}},
    },
    "prompts/list": {"prompts": [{"name": "greet"}]},
    "prompts/get": {"messages": []},
    "resources/list": {"resources": [{"uri": "note://a", "name": "a"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": [{"uri": "note://a", "text": "hello"}]},
    "resources/subscribe": {},
}


def routes(**settings: Any) -> Routes:
    return Routes(HttpSettings(**settings), lambda: {"files", "mail"}, backends=lambda: {"tasks"})


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/mcp", Endpoint("mcp", "")),
        ("/mcp/", Endpoint("mcp", "")),
        ("/sse", Endpoint("sse", "")),
        ("/ws", Endpoint("ws", "")),
        ("/servers/files/mcp", Endpoint("mcp", "files")),
        ("/servers/files/mcp/", Endpoint("mcp", "files")),
        ("/servers/mail/sse", Endpoint("sse", "mail")),
        ("/servers/mail/ws", Endpoint("ws", "mail")),
    ],
)
def test_paths_of_endpoints(path: str, endpoint: Endpoint) -> None:
    assert routes().find(path) == endpoint


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/", "MCP is served at /mcp"),
        ("/servers", "MCP is served at /mcp"),
        ("/servers/", "known: files, mail"),
        ("/servers/File/mcp", "known: files, mail"),
        ("/servers/tasks/mcp", r"a profile serves it alone: .* servers = ..tasks.."),
        ("/servers/files", "/servers/files/mcp, /servers/files/sse, /servers/files/ws"),
        ("/servers/files/mcp/more", "/servers/files/mcp"),
        ("/servers/../mcp", "known: files, mail"),
    ],
)
def test_a_path_that_is_none_says_which_are(path: str, said: str) -> None:
    with pytest.raises(Refused, match=said) as refused:
        routes().find(path)
    assert refused.value.status == 404


def test_what_is_turned_off_has_no_path() -> None:
    for path in ("/sse", "/servers/files/ws"):
        with pytest.raises(Refused):
            routes(sse=False, websocket=False).find(path)


def test_the_main_path_may_be_any_other_ones() -> None:
    assert routes(path="/ws").find("/ws") == Endpoint("mcp", "")


async def test_names_of_servers_are_told_only_to_those_who_may_come_in() -> None:
    token = TokenSettings(name="ann", sha256=hashlib.sha256(b"key").hexdigest())
    async with (
        http_server(ScriptedBridge(ScriptedCore()), HttpSettings(tokens=[token])) as at,
        httpx2.AsyncClient(trust_env=False, timeout=30) as http,
    ):
        stranger = await http.post(at.origin + "/servers/nobody/mcp", json=request("ping"), headers=JSON)
        assert stranger.status_code == 401
        assert "files" not in stranger.text
        ann = JSON | {"authorization": "Bearer key"}
        response = await http.post(at.origin + "/servers/nobody/mcp", json=request("ping"), headers=ann)
        assert response.status_code == 404
        assert "known: files, mail" in response.json()["error"]["message"]


async def test_a_session_of_one_endpoint_is_unknown_at_the_others() -> None:
    """Spec: an unknown session is 404, so that the client initializes a new one."""
    async with (
        http_server(ScriptedBridge(ScriptedCore()), HttpSettings()) as at,
        httpx2.AsyncClient(trust_env=False, headers=JSON, timeout=30) as http,
    ):
        opening = request("initialize", protocolVersion="2025-06-18")
        opened = await http.post(at.origin + "/servers/files/mcp", json=opening)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        for path, status in (("/servers/files/mcp", 200), ("/mcp", 404), ("/servers/mail/mcp", 404)):
            answer = await http.post(at.origin + path, json=request("ping"), headers=session)
            assert answer.status_code == status


async def test_the_core_is_told_which_server_a_client_sees() -> None:
    core = ScriptedCore()
    async with (
        http_server(ScriptedBridge(core), HttpSettings()) as at,
        httpx2.AsyncClient(trust_env=False, headers=JSON, timeout=30) as http,
    ):
        headers = named(modern_headers("echo", {}))
        await http.post(at.origin + "/servers/mail/mcp", json=modern_body("echo"), headers=headers)
        await http.post(at.origin + "/mcp", json=modern_body("echo"), headers=headers)
        assert [client.view for client, _ in core.asked] == ["mail", ""]


# -- with a real bridge


@asynccontextmanager
async def opened(
    kind: str, folder: Path, view: str = "files"
) -> AsyncIterator[tuple[OpenFront, dict[str, ScriptedTransport], BridgeToScripts]]:
    """A client that sees one of two servers that offer the same."""
    ups = {"files": ScriptedTransport(RICH), "mail": ScriptedTransport(RICH)}
    async with bridged(ups) as bridge, open_front(kind, bridge, folder, view=view) as front:
        yield front, ups, bridge


every_front = pytest.mark.parametrize("kind", FRONTS)


@every_front
async def test_one_server_is_seen_by_its_own_names(kind: str, tmp_path: Path) -> None:
    """Promise of docs/reference/protocol.md (One server by itself); apps in clients call tools by these names."""
    async with opened(kind, tmp_path) as (front, ups, _):
        await front.client.initialize()
        assert await front.client.tools() == ["echo"]
        assert (await front.client.call("echo", a=1)).text == "done"
        prompts = (await front.client.request("prompts/list")).result["prompts"]
        assert [prompt["name"] for prompt in prompts] == ["greet"]
        await front.client.request("prompts/get", {"name": "greet"})
        read = (await front.client.request("resources/read", {"uri": "note://a"})).result
        assert read["contents"] == [{"uri": "note://a", "text": "hello"}]
        assert ups["files"].asked("prompts/get")[0]["params"]["name"] == "greet"
        assert ups["mail"].asked("tools/call") == []


@every_front
async def test_modern_clients_see_it_alike(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (front, _, _):
        listed = (await front.client.request("tools/list", {"_meta": envelope()})).result
        assert [tool["name"] for tool in listed["tools"]] == ["echo"]
        answer = await front.client.request("tools/call", {"name": "echo", "arguments": {}, "_meta": envelope()})
        assert answer.text == "done"


@every_front
async def test_the_other_servers_do_not_exist_there(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (front, ups, _):
        await front.client.initialize()
        for name in ("mail__echo", "mail/echo"):
            with pytest.raises(AnswerRefused):
                _ = (await front.client.call(name)).result
        assert ups["mail"].asked("tools/call") == []


async def test_changes_are_told_to_those_who_see_them(tmp_path: Path) -> None:
    async with (
        opened("websocket", tmp_path) as (front, ups, bridge),
        open_front("websocket", bridge, tmp_path) as merged,
    ):
        for one in (front, merged):
            await one.client.initialize()
            await one.client.tools()
        ups["mail"].script["tools/list"] = {"tools": []}
        ups["mail"].line.says("notifications/tools/list_changed")
        await merged.client.notice("notifications/tools/list_changed")
        assert front.client.arrived == []
        ups["files"].script["tools/list"] = {"tools": []}
        ups["files"].line.says("notifications/tools/list_changed")
        await front.client.notice("notifications/tools/list_changed")


async def test_updates_name_the_resource_as_each_client_knows_it(tmp_path: Path) -> None:
    async with (
        opened("websocket", tmp_path) as (front, ups, bridge),
        open_front("websocket", bridge, tmp_path) as merged,
    ):
        for one, uri in ((front, "note://a"), (merged, "mcpb+files+note://a")):
            await one.client.initialize()
            await one.client.request("resources/subscribe", {"uri": uri})
        ups["files"].line.says("notifications/resources/updated", uri="note://a")
        for one, uri in ((front, "note://a"), (merged, "mcpb+files+note://a")):
            told = await one.client.notice("notifications/resources/updated")
            assert told["params"]["uri"] == uri
        ups["mail"].line.says("notifications/resources/updated", uri="note://a")
        await front.client.request("ping")
        assert len(front.client.arrived) == 1


async def test_prefixes_can_be_left_to_names_that_need_them(tmp_path: Path) -> None:
    other = {**RICH, "tools/list": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("echo", "sum")]}}
    ups = {"files": ScriptedTransport(RICH), "mail": ScriptedTransport(other)}
    async with (
        bridged(ups, bridge={"prefix": "on-collision"}) as bridge,
        open_front("stdio", bridge, tmp_path) as front,
    ):
        await front.client.initialize()
        assert await front.client.tools() == ["files__echo", "mail__echo", "sum"]
        assert (await front.client.call("sum")).text == "done"
        assert json.dumps(ups["mail"].asked("tools/call")[0]["params"]["name"]) == '"sum"'
