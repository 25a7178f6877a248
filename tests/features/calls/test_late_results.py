"""A call that outlives its client's patience is not lost (issue 4, Time)."""

import asyncio
import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as SdkClient
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from support.answering_clients import world
from support.harness import Place, eventually, python_server
from support.rpc import Client, HttpClient, Message, Refused, StdioClient, envelope
from support.virtual_time import pass_time

SERVERS = {"up": python_server("plain", call_timeout=30)}
CALL = {"name": "up__hold", "arguments": {}}
LATE = "mcpbridge/late"

PATIENCE_OVER = [
    "timed out after 5.0s",
    "McpError: MCP error -32001: Request timed out",
    "SdkError: Request timed out",
    "McpError: MCP error -32001: Maximum total timeout exceeded",
    "context deadline exceeded",
    "request timeout",
    "TimeoutError: The operation was aborted due to timeout",
]
"""What clients give as the reason when their own time for an answer is over."""
WISHES = ["caller cancelled", "AbortError: This operation was aborted", "the user pressed escape", "context canceled"]


async def journal(client: Client, **options: Any) -> list[Message]:
    """What the server was sent."""
    return json.loads((await client.call("up__journal", **options)).text)


async def arrived(client: Client, times: int = 1, **options: Any) -> list[Message]:
    """The calls that the server holds or held, as soon as there are so many."""

    async def look() -> list[Message]:
        return [m for m in await journal(client, **options) if m.get("params", {}).get("name") == "hold"]

    return await eventually(look, lambda found: len(found) >= times)


async def cancelled(client: Client) -> list[Message]:
    return [m for m in await journal(client) if m.get("method") == "notifications/cancelled"]


async def abandon(client: StdioClient, id_: int, reason: str, call: Message = CALL, times: int = 1) -> None:
    """Make a call, and cancel it for this reason once the server has it."""
    message = {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": call}
    await client.write(json.dumps(message).encode() + b"\n")
    await arrived(client, times)
    await client.tell("notifications/cancelled", requestId=id_, reason=reason)


async def told(client: Client, after: int = 0) -> Message:
    """What the client hears of its late call."""
    notice = await client.notice(
        "notifications/message", lambda params: params.get("logger") == "mcpbridge", after=after
    )
    assert notice["params"]["level"] == "notice"
    return notice["params"]["data"]


async def read(client: Client, uri: str, **more: Any) -> Message:
    result = (await client.request("resources/read", {"uri": uri, **more})).result
    [contents] = result["contents"]
    assert (contents["uri"], contents["mimeType"]) == (uri, "application/json")
    return json.loads(contents["text"])


async def test_an_sdk_client_that_gave_up_gets_the_result_with_the_same_call_and_can_read_it(place: Place) -> None:
    """The whole way with the official client, whose time for the call is far too short."""
    config = place.config(SERVERS)
    args = ["-m", "mcpbridge", "serve", "--config", str(config)]
    target = StdioServerParameters(command=sys.executable, args=args, env=place.environment(), cwd=str(place.folder))
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def hear(params: Any) -> None:
        if params.logger == "mcpbridge":
            heard.put_nowait(params.data)

    async with asyncio.timeout(60), SdkClient(stdio_client(target), mode="legacy", logging_callback=hear) as client:
        await client.call_tool("up__journal", {})
        with pytest.raises(MCPError, match="timed out"):
            await client.call_tool("up__hold", {}, read_timeout_seconds=1.5)
        await client.call_tool("up__release", {})
        notice = await heard.get()
        assert notice["tool"] == "up__hold"
        assert notice["uri"] in notice["message"]
        result = await client.call_tool("up__hold", {}, read_timeout_seconds=30)
        assert result.content[0].text == "released"
        assert result.meta[LATE]["handle"] == notice["handle"]
        [contents] = (await client.read_resource(notice["uri"])).contents
        assert json.loads(contents.text)["content"][0]["text"] == "released"


async def test_whose_patience_is_over_and_who_cancels_is_told_by_the_reason(place: Place) -> None:
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        for number, reason in enumerate(WISHES, 1):
            await abandon(client, 1000 + number, reason, times=number)
            await eventually(lambda: cancelled(client), lambda found, number=number: len(found) == number)
        for number, reason in enumerate(PATIENCE_OVER, 1):
            call = {**CALL, "arguments": {"number": number}}
            await abandon(client, 2000 + number, reason, call, times=len(WISHES) + number)
        await client.call("up__release")
        seen = 0
        for _ in PATIENCE_OVER:
            notice = await told(client, seen)
            seen = next(at for at, m in enumerate(client.arrived) if m.get("params", {}).get("data") == notice) + 1
        assert len(await cancelled(client)) == len(WISHES)


async def test_the_same_call_joins_the_one_that_still_runs(place: Place) -> None:
    """A write is not done twice because its client was impatient."""
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        await abandon(client, 900, "timed out after 1s")
        again = asyncio.create_task(client.call("up__hold"))
        await asyncio.sleep(0)
        assert len(await arrived(client)) == 1, "what came before it was read before it, so it has joined by now"
        await client.call("up__release")
        reply = await again
        assert reply.text == "released"
        meta = reply.result["_meta"][LATE]
        assert (await read(client, f"mcpbridge://results/{meta['handle']}"))["content"][0]["text"] == "released"
        assert len(await arrived(client)) == 1
        anew = asyncio.create_task(client.call("up__hold"))
        assert len(await arrived(client, 2)) == 2, "handed out once"
        await client.call("up__release")
        assert "_meta" not in (await anew).result


async def test_the_same_call_joins_though_it_comes_in_one_piece_with_the_cancellation(place: Place) -> None:
    """Neither overtakes the other: what a client wrote first is heard first, however it was cut on its way."""
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        message = {"jsonrpc": "2.0", "method": "tools/call", "params": CALL}
        await client.write(json.dumps(message | {"id": 900}).encode() + b"\n")
        await arrived(client)
        params = {"requestId": 900, "reason": "timed out after 1s"}
        cancellation = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        again = client.expect(901)
        await client.write(b"".join(json.dumps(one).encode() + b"\n" for one in (cancellation, message | {"id": 901})))
        assert len(await arrived(client)) == 1
        await client.call("up__release")
        assert (await again).text == "released"
        assert len(await arrived(client)) == 1


async def test_a_person_who_cancels_a_call_that_was_given_up_stops_it(place: Place) -> None:
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        await abandon(client, 900, "timed out after 1s")
        assert not await cancelled(client)
        await client.tell("notifications/cancelled", requestId=900, reason="the user pressed escape")
        await eventually(lambda: cancelled(client), lambda found: len(found) == 1)


async def test_what_waits_for_its_turn_is_cancelled_since_nothing_is_lost(place: Place) -> None:
    server = python_server("plain", call_timeout=30, max_concurrent=2, tool={"hold": {"max_concurrent": 1}})
    async with place.bridge({"up": server}) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        first = asyncio.create_task(client.call("up__hold"))
        await arrived(client)
        await client.write(b'{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"up__hold"}}\n')
        await client.tell("notifications/cancelled", requestId=900, reason="timed out after 1s")
        await client.call("up__release")
        assert (await first).text == "released"
        assert len(await arrived(client)) == 1


async def test_a_late_call_that_fails_is_told_as_well(tmp_path: Path) -> None:
    servers = {"up": ([], {"call_timeout": 30})}
    async with world("stdio", tmp_path, servers, program="plain", store={"kind": "memory"}) as around:
        client = (await around.person(tools={})).client
        await abandon(client, 900, "timed out after 1s")
        await client.request("ping")  # what was written before it was read before it
        pass_time(30)
        data = await told(client)
        assert data["tool"] == "up__hold"
        assert "no answer within 30 s" in data["message"]
        assert "uri" not in data


async def test_a_client_that_wants_only_warnings_is_not_told(place: Place) -> None:
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        await client.request("logging/setLevel", {"level": "warning"})
        await abandon(client, 900, "timed out after 1s")
        await client.call("up__release")
        reply = await client.call("up__hold")
        assert reply.result["_meta"][LATE]
        assert not [m for m in client.arrived if m.get("method") == "notifications/message"]


async def test_a_tool_can_be_cancelled_whatever_the_reason(place: Place) -> None:
    async with place.bridge({"up": python_server("plain", call_timeout=30, late="cancel")}) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        await abandon(client, 900, "timed out after 1s")
        await eventually(lambda: cancelled(client), lambda found: len(found) == 1)


async def test_a_modern_client_on_a_channel_gets_it_with_the_same_call(place: Place) -> None:
    async with place.bridge(SERVERS) as client:
        modern = {"meta": envelope()}
        await eventually(lambda: client.call("up__echo", **modern), lambda reply: "result" in reply.message)
        message = {"jsonrpc": "2.0", "id": 900, "method": "tools/call", "params": {**CALL, "_meta": envelope()}}
        await client.write(json.dumps(message).encode() + b"\n")
        await arrived(client, **modern)
        await client.tell("notifications/cancelled", requestId=900, reason="SdkError: Request timed out")
        await client.call("up__release", **modern)
        reply = await client.call("up__hold", **modern)
        late = reply.result["_meta"][LATE]
        assert reply.text == "released"
        found = await read(client, f"mcpbridge://results/{late['handle']}", _meta=envelope())
        assert found["content"][0]["text"] == "released"
        assert not client.arrived


async def test_over_http_the_request_ends_without_its_result_and_the_session_is_told(place: Place) -> None:
    async with place.http_bridge(SERVERS) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        message = {"jsonrpc": "2.0", "id": "mine", "method": "tools/call", "params": CALL}
        call = asyncio.create_task(client.exchange(message, 30))
        await arrived(client)
        await client.tell("notifications/cancelled", requestId="mine", reason="timed out after 1s")
        await client.call("up__release")
        assert (await call).message["error"]["code"] == -32800
        uri = (await told(client))["uri"]
        assert (await client.call("up__hold")).result["_meta"][LATE]["handle"] == uri.rpartition("/")[2]
        async with HttpClient(client.url, client.command) as other:
            await other.initialize()
            assert (await read(other, uri))["content"][0]["text"] == "released"


async def test_a_client_over_http_that_only_closed_its_response_gets_it_with_the_same_call(place: Place) -> None:
    """MCP 2025-11-25, transports: that is no cancellation; and this client has no event to go on from."""
    async with place.http_bridge(SERVERS) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        call = asyncio.create_task(client.call("up__hold", within=30))
        await arrived(client)
        call.cancel()
        await asyncio.wait([call])
        await client.command.logged("client stopped waiting")
        async with client.listening():
            await client.call("up__release")
            assert (await told(client))["tool"] == "up__hold"
        assert (await client.call("up__hold")).result["_meta"][LATE]
        assert not await cancelled(client)


async def test_a_kept_result_is_its_principals_alone(place: Place) -> None:
    secrets = {name: name * 8 for name in ("alice", "bob")}
    tokens = [{"name": name, "sha256": sha256(secret.encode()).hexdigest()} for name, secret in secrets.items()]
    async with place.http_bridge(SERVERS, http={"tokens": tokens}) as client:
        client.http.headers["authorization"] = f"Bearer {secrets['alice']}"
        await client.initialize()
        await client.tools_with("up__hold")
        message = {"jsonrpc": "2.0", "id": "mine", "method": "tools/call", "params": CALL}
        call = asyncio.create_task(client.exchange(message, 30))
        await arrived(client)
        await client.tell("notifications/cancelled", requestId="mine", reason="timed out after 1s")
        await client.call("up__release")
        await call
        uri = (await told(client))["uri"]
        async with HttpClient(client.url, client.command) as bob:
            bob.http.headers["authorization"] = f"Bearer {secrets['bob']}"
            await bob.initialize()
            with pytest.raises(Refused, match="Unknown resource"):
                await read(bob, uri)
        assert (await read(client, uri))["content"][0]["text"] == "released"


@pytest.mark.parametrize("uri", ["mcpbridge://results/", "mcpbridge://results/0123456789abcdef0123456789abcdef"])
async def test_a_handle_that_names_nothing_is_an_unknown_resource(place: Place, uri: str) -> None:
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        with pytest.raises(Refused) as refused:
            await read(client, uri)
        assert refused.value.code == -32002
        assert refused.value.data == {"uri": uri}
        with pytest.raises(Refused) as refused:
            await read(client, uri, _meta=envelope())
        assert refused.value.code == -32602


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_a_server_runs_as_a_task_is_not_lost_either(tmp_path: Path, era: str) -> None:
    """Such tools take long by design; the client knows nothing of tasks."""
    steps = [*({"say": f"look {number}"} for number in range(8)), {"result": {"content": []}}]
    async with world(
        "stdio", tmp_path, {"up": [era, "stdio"]}, program="tasks_upstream", store={"kind": "memory"}
    ) as around:
        person = await around.person(tools={})
        call = person.begins("up__job", steps=steps, poll=50)
        await around.gets("up", "tasks/get", times=2)
        assert person.client._last_id == 2, "the handshake was the first request"
        await person.client.tell("notifications/cancelled", requestId=2, reason="timed out after 1s")
        uri = (await told(person.client))["uri"]
        assert (await read(person.client, uri))["content"] == []
        reply = await person.calls("up__job", lambda question: None, steps=steps, poll=50)
        assert reply.result["_meta"][LATE]
        assert not around.sent("up", "tasks/cancel")
        assert not call.done()
        call.cancel()


async def test_what_others_may_share_is_kept_as_well(place: Place) -> None:
    """The call of a cached tool."""
    server = python_server("plain", call_timeout=30, tool={"hold": {"read_only": True, "cache": 60}})
    async with place.bridge({"up": server}) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        await abandon(client, 900, "timed out after 1s")
        await client.call("up__release")
        assert (await read(client, (await told(client))["uri"]))["content"][0]["text"] == "released"
        assert not await cancelled(client)


async def test_a_call_that_somebody_agreed_to_is_kept_as_well(place: Place) -> None:
    """The answer of a modern client comes with a request of its own: that is the one which it gives up."""
    tool = {"hold": {"permission": "require_approval"}}
    server = python_server("plain", call_timeout=30, questions="never", tool=tool)
    able = envelope(**{"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}})
    async with place.bridge({"up": server}, approval={"ask": ["client"]}) as client:
        modern: Any = {"meta": able}
        await eventually(lambda: client.call("up__echo", **modern), lambda reply: "result" in reply.message)
        asked = (await client.call("up__hold", **modern)).result
        answers = {key: {"action": "accept", "content": {"decision": "once"}} for key in asked["inputRequests"]}
        call = {**CALL, "requestState": asked["requestState"], "inputResponses": answers, "_meta": able}
        message = {"jsonrpc": "2.0", "id": 900, "method": "tools/call", "params": call}
        await client.write(json.dumps(message).encode() + b"\n")
        await arrived(client, meta=envelope())
        await client.tell("notifications/cancelled", requestId=900, reason="SdkError: Request timed out")
        await client.call("up__release", **modern)
        asked = (await client.call("up__hold", **modern)).result
        call |= {"requestState": asked["requestState"]}
        call |= {"inputResponses": {key: next(iter(answers.values())) for key in asked["inputRequests"]}}
        reply = await client.request("tools/call", call)
        assert reply.result["_meta"][LATE]
        assert len(await arrived(client, meta=envelope())) == 1
