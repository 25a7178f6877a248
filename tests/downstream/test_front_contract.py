"""What every front promises: the same bridge, whichever way a client came in.

One suite over stdio, streamable HTTP (on a port and on a Unix-domain socket), HTTP+SSE and WebSocket, with a real
bridge behind it. What only one of them has stands in that one's own file.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import websockets
from websockets.asyncio.client import connect

from mcpbridge.downstream import stdio
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.protocol.revisions import LEGACY
from support.front_clients import FRONTS, WEB_FRONTS, OpenFront, Served, http_server, open_front
from support.http_front import ScriptedBridge, ScriptedCore
from support.in_process_bridge import BridgeToScripts, bridged
from support.rpc import Refused, envelope
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport

Message = dict[str, Any]

every_front = pytest.mark.parametrize("kind", FRONTS)
every_web_front = pytest.mark.parametrize("kind", WEB_FRONTS)

CALL = {"name": "up__echo", "arguments": {}}


def echo(params: Message) -> Message:
    return {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}


@asynccontextmanager
async def opened(
    kind: str, folder: Path, script: Any = None, **settings: Any
) -> AsyncIterator[tuple[OpenFront, ScriptedTransport, BridgeToScripts]]:
    """A client of a front, the server behind the bridge, and the bridge."""
    up = ScriptedTransport(script or {**LEGACY_SERVER, "tools/call": echo})
    async with AsyncExitStack() as stack:
        bridge = await stack.enter_async_context(bridged({"up": up}))
        front = await stack.enter_async_context(open_front(kind, bridge, folder, **settings))
        yield front, up, bridge


# -- both eras


@every_front
@pytest.mark.parametrize("version", LEGACY)
async def test_every_revision_with_a_handshake_is_agreed_on(kind: str, version: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (front, _, _):
        assert (await front.client.initialize(version))["protocolVersion"] == version
        assert await front.client.tools() == ["up__echo"]
        assert (await front.client.call("up__echo", a=1)).text == '{"a": 1}'
        assert (await front.client.request("ping")).result == {}


@every_front
async def test_a_request_with_the_modern_envelope_needs_no_handshake(kind: str, tmp_path: Path) -> None:
    """MCP 2026-07-28, Versioning and Compatibility. On channels for both directions both eras may be mixed."""
    async with opened(kind, tmp_path) as (front, _, _):
        found = (await front.client.request("server/discover", {"_meta": envelope()})).result
        assert "2026-07-28" in found["supportedVersions"]
        answer = await front.client.request("tools/call", {**CALL, "arguments": {"b": 2}, "_meta": envelope()})
        assert answer.text == '{"b": 2}'
        assert answer.result["resultType"] == "complete"


@every_front
async def test_an_envelope_that_lacks_something_is_refused_with_the_code_for_it(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (front, _, _):
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        with pytest.raises(Refused) as refused:
            _ = (await front.client.request("tools/list", {"_meta": meta})).result
        assert refused.value.code == -32602


# -- requests and answers


@every_front
async def test_an_unknown_method_is_an_error_and_the_client_stays(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (front, _, _):
        await front.client.initialize()
        with pytest.raises(Refused) as refused:
            _ = (await front.client.request("no/such")).result
        assert refused.value.code == -32601
        assert await front.client.tools() == ["up__echo"]


@every_front
async def test_what_is_no_message_gets_an_error_and_the_client_stays(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (front, _, _):
        await front.client.initialize()
        said = await front.spoil(b'{"jsonrpc": "2.0", "id": 7, "method": 7}')
        assert said["error"]["code"] in (-32600, -32700)
        assert await front.client.tools() == ["up__echo"]


@every_front
async def test_many_requests_run_side_by_side_and_each_gets_its_own_answer(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (front, _, _):
        await front.client.initialize()
        tasks = [front.start("tools/call", {"name": "up__echo", "arguments": {"n": n}}) for n in range(60)]
        answers = await asyncio.gather(*tasks)
        assert [answer.text for answer in answers] == [f'{{"n": {n}}}' for n in range(60)]


@every_front
async def test_ids_come_back_as_they_were_written(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (front, _, _):
        await front.client.initialize()
        for id_ in ("7", 70, "ünï", 2**53 + 1):
            assert (await front.start("ping", {}, id_)).message["id"] == id_


@every_front
async def test_a_result_of_20_mb_crosses(kind: str, tmp_path: Path) -> None:
    """Over event streams only where `http.max_event` lets it."""
    text = "x" * 20_000_000
    script = {**LEGACY_SERVER, "tools/call": {"content": [{"type": "text", "text": text}]}}
    async with opened(kind, tmp_path, script, max_event=0) as (front, _, _):
        await front.client.initialize()
        assert (await front.client.call("up__echo", within=20)).text == text


@every_front
async def test_a_batch_is_answered_as_one_in_the_revision_that_has_them(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (front, _, _):
        await front.client.initialize("2025-03-26")
        pings = [{"jsonrpc": "2.0", "id": f"b{n}", "method": "ping"} for n in range(3)]
        if kind in ("http", "unix"):
            client = front.client
            response = await client.http.post(client.url, json=pings, headers=client.headers({}))
            answers = response.json()
        elif kind == "stdio":
            await front.client.write(json.dumps(pings).encode() + b"\n")
            answers = await front.client.batch()
        else:
            await front.client.send(json.dumps(pings).encode())
            async with asyncio.timeout(30):
                answers = await front.client.batches.get()
        assert sorted(answer["id"] for answer in answers) == ["b0", "b1", "b2"]


# -- while a call runs, and its end


@every_front
async def test_progress_reaches_the_client_under_its_own_token(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path, {**LEGACY_SERVER, "tools/call": SILENCE}) as (front, up, _):
        await front.client.initialize()
        calling = front.start("tools/call", {**CALL, "_meta": {"progressToken": "mine"}})
        request = await up.hears("tools/call")
        token = request["params"]["_meta"]["progressToken"]
        up.line.says("notifications/progress", progressToken=token, progress=1)
        told = await front.client.notice("notifications/progress")
        assert told["params"]["progressToken"] == "mine"
        up.line.gives({"jsonrpc": "2.0", "id": request["id"], "result": echo({})})
        assert not (await calling).failed


@every_front
async def test_a_cancelled_request_is_cancelled_upstream_and_not_answered(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path, {**LEGACY_SERVER, "tools/call": SILENCE}) as (front, up, _):
        await front.client.initialize()
        calling = front.start("tools/call", CALL, "long")
        request = await up.hears("tools/call")
        await front.client.tell("notifications/cancelled", requestId="long")
        told = await up.hears("notifications/cancelled")
        assert told["params"]["requestId"] == request["id"]
        assert (await front.client.request("ping")).result == {}
        if kind not in ("http", "unix"):  # there the stream ends without an answer
            assert not calling.done()
        calling.cancel()
        await asyncio.wait([calling])


@every_front
async def test_what_a_client_that_left_had_under_way_is_cancelled_upstream(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "END_GRACE", 0)
    async with opened(kind, tmp_path, {**LEGACY_SERVER, "tools/call": SILENCE}) as (front, up, _):
        await front.client.initialize()
        calling = front.start("tools/call", CALL)
        request = await up.hears("tools/call")
        await front.leave()
        assert (await up.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        calling.cancel()
        await asyncio.wait([calling])


@every_front
async def test_an_answer_of_the_client_to_a_question_reaches_the_core(kind: str, tmp_path: Path) -> None:
    """Over HTTP it is a POST, answered 202 at once (spec, streamable HTTP)."""
    core = ScriptedCore()
    async with open_front(kind, ScriptedBridge(core), tmp_path) as front:
        await front.client.initialize()
        calling = front.start("hold", {})
        async with asyncio.timeout(30):
            notify = await core.held.get()
        assert notify(b'{"jsonrpc":"2.0","id":"q1","method":"roots/list"}') is not False
        asked = await front.client.notice("roots/list")
        await front.answer({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}})
        await front.answer({"jsonrpc": "2.0", "id": "q2", "error": {"code": -1, "message": "no"}})
        with anyio.fail_after(30):
            while len(core.answers) < 2:
                await anyio.sleep(0.01)
        assert [id_ for _, id_ in core.answers] == [b'"q1"', b'"q2"']
        core.release.set()
        await calling


# -- what the bridge says by itself


@every_front
async def test_changes_of_a_list_are_told_to_sessions(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (front, up, _):
        await front.client.initialize()
        await front.client.tools()
        async with AsyncExitStack() as stack:
            if kind in ("http", "unix"):
                await stack.enter_async_context(front.client.listening())
            up.script["tools/list"] = {"tools": [{"name": "other", "inputSchema": {"type": "object"}}]}
            up.line.says("notifications/tools/list_changed")
            await front.client.notice("notifications/tools/list_changed")
        assert await front.client.tools() == ["up__other"]


@every_front
async def test_a_modern_client_hears_what_it_listens_for(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (front, up, _):
        params = {"notifications": {"toolsListChanged": True}, "_meta": envelope()}
        listening = front.start("subscriptions/listen", params, "l1")
        acknowledged = await front.client.notice("notifications/subscriptions/acknowledged")
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
        up.script["tools/list"] = {"tools": []}
        up.line.says("notifications/tools/list_changed")
        told = await front.client.notice("notifications/tools/list_changed")
        assert told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "l1"
        listening.cancel()
        await asyncio.wait([listening])


# -- who may come in


PATHS = {"http": "/mcp", "sse": "/sse", "websocket": "/ws"}


async def knock(kind: str, at: Served, **headers: str) -> tuple[int, str]:
    """The status and body that a first request with these headers gets; 101 and 200 let in."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if kind == "websocket":
        url = at.origin.replace("http", "ws", 1) + "/ws"
        subprotocol = [websockets.Subprotocol("mcp")]
        if "host" in named:  # the library writes its own
            named |= {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
            named |= {"sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}
            async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
                response = await client.get(at.origin + "/ws", headers=named)
                return response.status_code, response.text
        try:
            async with connect(url, subprotocols=subprotocol, additional_headers=named, proxy=None):
                return 101, ""
        except websockets.InvalidStatus as error:
            return error.response.status_code, bytes(error.response.body).decode()
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
        if kind == "sse":
            async with client.stream("GET", at.origin + "/sse", headers=named) as response:
                return response.status_code, "" if response.is_success else (await response.aread()).decode()
        opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": LEGACY[-1]}}
        response = await client.post(at.origin + "/mcp", json=opening, headers=named)
        return response.status_code, response.text


@every_web_front
async def test_foreign_hosts_and_origins_are_refused_before_anything_else(kind: str) -> None:
    """Spec, transports: a present Origin that is not allowed gets 403; a foreign Host is DNS rebinding."""
    core = ScriptedCore()
    async with http_server(ScriptedBridge(core), HttpSettings(allowed_origins=["https://app.example"])) as at:
        assert (await knock(kind, at, host="evil.example"))[0] == 421
        status, body = await knock(kind, at, origin="https://evil.example")
        assert status == 403
        assert "Origin" in json.loads(body)["error"]["message"]
        assert (await knock(kind, at, origin="https://app.example"))[0] in (101, 200)
        assert len(core.clients) <= 1


@every_web_front
async def test_without_its_token_nobody_gets_in(kind: str) -> None:
    async with http_server(ScriptedBridge(ScriptedCore()), HttpSettings(), token="s3cret") as at:
        status, body = await knock(kind, at)
        assert status == 401
        assert "token" in json.loads(body)["error"]["message"]
        assert (await knock(kind, at, authorization="Bearer wrong"))[0] == 401
        assert (await knock(kind, at, authorization="Bearer s3cret"))[0] in (101, 200)


@every_web_front
async def test_sessions_have_a_number(kind: str) -> None:
    """Over streamable HTTP the longest idle one makes room; a channel that is open is never idle."""
    settings = HttpSettings(max_sessions=1)
    async with (
        http_server(ScriptedBridge(ScriptedCore()), settings) as at,
        httpx2.AsyncClient(trust_env=False, timeout=30) as http,
    ):
        if kind == "http":
            assert (await knock(kind, at))[0] == 200
            assert (await knock(kind, at))[0] == 200
        elif kind == "sse":
            async with http.stream("GET", at.origin + "/sse"):
                assert (await knock(kind, at))[0] == 503
        else:
            async with connect(at.origin.replace("http", "ws", 1) + "/ws", proxy=None):
                assert (await knock(kind, at))[0] == 503


# -- questions


@every_front
async def test_a_question_of_a_server_reaches_the_client_and_its_answer_the_server(kind: str, tmp_path: Path) -> None:
    """Spec, elicitation: on the stream of the very call that it belongs to."""
    async with opened(kind, tmp_path, {**LEGACY_SERVER, "tools/call": SILENCE}) as (front, up, _):
        await front.client.initialize(elicitation={})
        calling = front.start("tools/call", CALL)
        request = await up.hears("tools/call")
        params = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
        line = next(one for one in up.lines if one.asked("tools/call"))
        line.gives({"jsonrpc": "2.0", "id": "s1", "method": "elicitation/create", "params": params})
        asked = await front.client.notice("elicitation/create")
        assert "Sure?" in asked["params"]["message"]
        assert not calling.done()
        result = {"action": "accept", "content": {}}
        await front.answer({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        with anyio.fail_after(30):
            while not (told := [one for one in line.heard if one.get("id") == "s1"]):
                await anyio.sleep(0.01)
        assert told[0]["result"] == result
        line.gives({"jsonrpc": "2.0", "id": request["id"], "result": echo({})})
        assert not (await calling).failed
