"""The server core, both eras: who may ask what and when, ids, cancelling, and what clients do not share."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from msgspec import Raw

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.protocol.jsonrpc import Frame, decode_frame
from support.in_process_bridge import Ear, bridged, frame_of
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, SILENCE, Refusal, ScriptedTransport
from support.virtual_time import standing_time

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
RESOURCEFUL: dict[str, Any] = {
    **LEGACY_SERVER,
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {},
            "logging": {},
        },
    },
    "resources/list": {"resources": [{"uri": "memo://1", "name": "1"}, {"uri": "memo://2", "name": "2"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "page://{n}", "name": "page"}]},
    "resources/read": {"contents": [{"uri": "memo://1", "text": "one"}]},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "prompts/list": {"prompts": [{"name": "greet"}]},
    "prompts/get": {"messages": []},
    "logging/setLevel": {},
}
ELSEWHERE = {
    **RESOURCEFUL,
    "resources/list": {"resources": [{"uri": "other://1", "name": "1"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "prompts/list": {"prompts": []},
}
"""With a second server that has resources, an unknown URI is nobody's; with one, it may be that one's."""
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SILENT_CALLS = {**LEGACY_SERVER, "tools/call": SILENCE}


def code(answer: dict[str, Any]) -> int:
    return answer["error"]["code"]


# -- opening


@pytest.mark.parametrize("version", LEGACY)
async def test_each_legacy_revision_is_agreed_on(version: str) -> None:
    async with bridged({}) as bridge:
        ear = Ear(bridge.server)
        result = await ear.initialize(version)
        assert result["protocolVersion"] == ear.client.version == version
        assert result["serverInfo"]["name"] == "mcpbridge"
        since = {"completions"} if version >= "2025-03-26" else set[str]()
        assert set(result["capabilities"]) == {"tools", "prompts", "resources", "logging"} | since
        assert result["instructions"]
        assert ear.client.info["name"] == "ear"
        assert ear.client.initialized


@pytest.mark.parametrize("version", ["2026-07-28", "2031-01-01", "1999-01-01", "", "x" * 10_000])
async def test_any_other_revision_is_answered_with_the_newest_that_has_a_handshake(version: str) -> None:
    async with bridged({}) as bridge:
        assert (await Ear(bridge.server).initialize(version))["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("params", [None, {}, {"protocolVersion": 5}, [], {"protocolVersion": "x", "capabilities": 1}])
async def test_a_handshake_of_the_wrong_shape_is_refused_and_opens_nothing(params: Any) -> None:
    async with bridged({}) as bridge:
        ear = Ear(bridge.server)
        assert code(await ear.ask("initialize", params)) == -32602
        assert code(await ear.ask("tools/list")) == -32600


async def test_before_the_handshake_only_it_and_a_ping_are_answered() -> None:
    async with bridged({"up": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        ear = Ear(bridge.server)
        assert (await ear.ask("ping"))["result"] == {}
        for method in ("tools/list", "tools/call", "logging/setLevel", "resources/subscribe"):
            answer = await ear.ask(method, {"name": "up__echo"})
            assert code(answer) == -32600
            assert "initialize" in answer["error"]["message"]
        await ear.initialize()
        assert (await ear.ask("tools/list"))["result"]["tools"]


async def test_a_modern_client_discovers_and_needs_no_handshake() -> None:
    async with bridged({"up": ScriptedTransport(LEGACY_SERVER)}, bridge={"instructions": "mine"}) as bridge:
        ear = Ear(bridge.server)
        found = (await ear.ask_modern("server/discover"))["result"]
        assert found["supportedVersions"] == ["2026-07-28", *reversed(LEGACY)]
        assert found["resultType"] == "complete"
        assert found["instructions"] == "mine\n\nServer `up`:\n> be kind"
        assert (found["ttlMs"], found["cacheScope"]) == (60_000, "private")
        assert (await ear.ask_modern("tools/list"))["result"]["tools"]


@pytest.mark.parametrize(
    ("method", "modern", "hint"),
    [
        ("nonsense", False, ""),
        ("nonsense", True, ""),
        ("server/discover", False, ""),
        ("subscriptions/listen", False, "needs the per-request _meta envelope"),
        ("initialize", True, "not part of revision 2026-07-28"),
        ("ping", True, "not part of revision 2026-07-28"),
        ("logging/setLevel", True, "not part of revision 2026-07-28"),
        ("resources/subscribe", True, "not part of revision 2026-07-28"),
        ("x" * 1000, False, ""),
    ],
)
async def test_a_method_that_the_era_does_not_have_is_not_found(method: str, modern: bool, hint: str) -> None:
    async with bridged({}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        answer = await (ear.ask_modern if modern else ear.ask)(method)
        assert code(answer) == -32601
        assert hint in answer["error"]["message"]
        assert len(answer["error"]["message"]) < 300


# -- ids


@pytest.mark.parametrize(
    "id_", [b"0", b"-1", b"1.50", b"123456789012345678901234567890", b'"a"', b'"\\u0061\\n"', b'""']
)
async def test_an_answer_carries_the_very_id_of_its_request(id_: bytes) -> None:
    """JSON-RPC 2.0, section 4; results and errors alike."""
    async with bridged({"up": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        ear = Ear(bridge.server)
        for method in ("ping", "nonsense", "tools/list"):
            answer = await ear.raw(frame_of(method, None, id_))
            assert answer.startswith(b'{"jsonrpc":"2.0","id":%b,' % id_)
        await ear.initialize()
        for name in ("up__echo", "unknown"):
            answer = await ear.raw(frame_of("tools/call", {"name": name}, id_))
            assert answer.startswith(b'{"jsonrpc":"2.0","id":%b,' % id_)


@pytest.mark.parametrize("id_", [b"null", b"true", b"{}", b"[1]", b""])
async def test_an_id_that_is_neither_text_nor_number_is_refused(id_: bytes) -> None:
    async with bridged({}) as bridge:
        answer = json.loads(await Ear(bridge.server).raw(Frame(id=Raw(id_), method="ping")))
        assert (answer["id"], code(answer)) == (None, -32600)


async def test_an_id_in_use_is_refused_and_the_first_call_goes_on() -> None:
    transport = ScriptedTransport(SILENT_CALLS)
    async with bridged({"up": transport}) as bridge:
        ear, other = Ear(bridge.server), Ear(bridge.server)
        for each in (ear, other):
            await each.initialize()
        first = asyncio.ensure_future(ear.ask("tools/call", {"name": "echo"}, b'"x"'))
        asked = await transport.hears("tools/call")
        for again in (ear.ask("tools/list", None, b'"x"'), ear.ask_modern("tools/list", None, b'"x"')):
            answer = await again
            assert code(answer) == -32600
            assert "unique" in answer["error"]["message"]
        assert (await other.ask("ping", None, b'"x"'))["result"] == {}, "ids of other clients are others"
        assert (await ear.ask("ping", None, b"1"))["result"] == {}
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})
        assert (await first)["result"] == {"content": []}
        assert (await ear.ask("ping", None, b'"x"'))["result"] == {}, "free again"


# -- calling


async def test_a_call_goes_by_every_name_and_arrives_with_its_own() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        for name in ("up__echo", "up/echo", "up.echo", "echo"):
            await ear.ask("tools/call", {"name": name, "arguments": {"a": 1}})
        assert [sent["params"]["name"] for sent in transport.asked("tools/call")] == ["echo"] * 4


@pytest.mark.parametrize(
    "params",
    [None, {}, {"name": 5}, [], {"name": "up__echo", "arguments": [1]}, {"name": "up__echo", "arguments": "x"}],
)
async def test_a_call_of_the_wrong_shape_reaches_no_server(params: Any) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        assert code(await ear.ask("tools/call", params)) == -32602
        assert not transport.asked("tools/call")


async def test_an_unknown_tool_is_refused_with_the_nearest_name() -> None:
    async with bridged({"up": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        answer = await ear.ask("tools/call", {"name": "up__ecko"})
        assert code(answer) == -32602
        assert "up__echo" in answer["error"]["message"]


async def test_a_call_to_a_server_that_is_away_is_a_result_for_the_model() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        transport.refuses = [UpstreamUnavailable("up", "connection refused")] * 9
        call = asyncio.ensure_future(ear.ask("tools/call", {"name": "echo"}))
        transport.script["tools/call"] = SILENCE
        await transport.hears("tools/call")
        transport.line.ends("exit code 3")
        result = (await call)["result"]
        assert result["isError"]
        assert "'up'" in result["content"][0]["text"]
        assert "exit code 3" in result["content"][0]["text"]
        assert (await ear.ask("tools/list"))["result"]["tools"], "a sick server keeps its tools listed"


async def test_a_modern_client_gets_the_results_of_a_legacy_server_complete_and_the_other_way_round() -> None:
    new = ScriptedTransport(MODERN_SERVER, **{"tools/call": {"resultType": "complete", "ttlMs": 1, "content": []}})
    async with bridged({"old": ScriptedTransport(LEGACY_SERVER), "new": new}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        assert (await ear.ask_modern("tools/call", {"name": "old__echo"}))["result"]["resultType"] == "complete"
        assert (await ear.ask("tools/call", {"name": "new__echo"}))["result"] == {"content": []}


async def test_a_result_that_asks_for_more_is_nothing_for_a_legacy_client() -> None:
    asks = ScriptedTransport(MODERN_SERVER, **{"tools/call": {"resultType": "input_required", "inputRequests": {}}})
    async with bridged({"new": asks}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        result = (await ear.ask("tools/call", {"name": "new__echo"}))["result"]
        assert result["isError"]
        assert "input_required" in result["content"][0]["text"]


async def test_prompts_resources_and_completions_find_their_server() -> None:
    transport = ScriptedTransport(RESOURCEFUL, **{"completion/complete": {"completion": {"values": ["x"]}}})
    async with bridged({"up": transport, "other": ScriptedTransport(ELSEWHERE)}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        assert (await ear.ask("prompts/get", {"name": "up__greet"}))["result"] == {"messages": []}
        read = await ear.ask("resources/read", {"uri": "memo://1"})
        assert read["result"]["contents"][0]["text"] == "one"
        await ear.ask("resources/read", {"uri": "page://7"})
        assert transport.asked("resources/read")[-1]["params"]["uri"] == "page://7"
        assert code(await ear.ask("resources/read", {"uri": "nobody://x"})) == -32002
        assert code(await ear.ask_modern("resources/read", {"uri": "nobody://x"})) == -32602
        # It declares no completions, so it is not asked for any.
        for kind in ({"type": "ref/prompt", "name": "greet"}, {"type": "ref/resource", "uri": "page://{n}"}):
            params = {"ref": kind, "argument": {"name": "n", "value": ""}}
            assert (await ear.ask("completion/complete", params))["result"]["completion"]["values"] == []
            assert (await ear.ask_modern("completion/complete", params))["result"]["resultType"] == "complete"
        assert not transport.asked("completion/complete")
        assert code(await ear.ask("completion/complete", {"ref": {"type": "ref/odd"}})) == -32602
        assert code(await ear.ask("completion/complete", {})) == -32602


async def test_completions_go_to_the_owner_of_the_prompt_or_template() -> None:
    capabilities = {"prompts": {}, "resources": {}, "completions": {}}
    transport = ScriptedTransport(
        RESOURCEFUL,
        **{
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": capabilities},
            "completion/complete": {"completion": {"values": ["x"]}},
        },
    )
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        for ref in ({"type": "ref/prompt", "name": "up__greet"}, {"type": "ref/resource", "uri": "page://{n}"}):
            answer = await ear.ask("completion/complete", {"ref": ref, "argument": {"name": "n", "value": ""}})
            assert answer["result"]["completion"]["values"] == ["x"]
        refs = [sent["params"]["ref"] for sent in transport.asked("completion/complete")]
        assert refs == [{"type": "ref/prompt", "name": "greet"}, {"type": "ref/resource", "uri": "page://{n}"}]


async def test_a_bad_cursor_is_refused() -> None:
    async with bridged({"up": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        for cursor in ("nonsense", 5, ["x"]):
            assert code(await ear.ask("tools/list", {"cursor": cursor})) == -32602
        assert (await ear.ask("tools/list", {"cursor": None}))["result"]["tools"]


async def test_the_first_listing_waits_for_servers_that_are_starting() -> None:
    transport = ScriptedTransport(SILENT_CALLS, initialize=SILENCE)
    servers = {"up": {"era": "legacy"}}
    async with bridged({"up": transport}, settle=False, servers=servers, bridge={"startup_wait": 10}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        listing = asyncio.ensure_future(ear.ask("tools/list"))
        calling = asyncio.ensure_future(ear.ask("tools/call", {"name": "up__echo"}, b"2"))
        asked = await transport.hears("initialize")
        assert not listing.done()
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": LEGACY_SERVER["initialize"]})
        assert (await listing)["result"]["tools"]
        await transport.hears("tools/call")
        calling.cancel()
        await asyncio.wait([calling])


# -- progress


async def test_progress_comes_with_the_token_of_the_client_and_only_if_it_has_one() -> None:
    transport = ScriptedTransport(SILENT_CALLS)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        call = {"name": "echo", "_meta": {"progressToken": "mine"}}
        first = asyncio.ensure_future(ear.ask("tools/call", call, b"5"))
        asked = await transport.hears("tools/call")
        token = asked["params"]["_meta"]["progressToken"]
        assert token != "mine"
        transport.line.says("notifications/progress", progressToken=token, progress=1)
        transport.line.says("notifications/progress", progressToken="mine", progress=2)
        second = asyncio.ensure_future(ear.ask("tools/call", {"name": "echo"}, b"6"))
        asked_again = await transport.hears("tools/call", times=2)
        assert "_meta" not in asked_again["params"]
        transport.line.says("notifications/progress", progressToken=asked_again["id"], progress=3)
        for message in (asked, asked_again):
            transport.line.gives({"jsonrpc": "2.0", "id": message["id"], "result": {}})
        await asyncio.gather(first, second)
        transport.line.says("notifications/progress", progressToken=token, progress=9)
        assert [message["params"] for message in ear.meanwhile] == [{"progressToken": "mine", "progress": 1}]


# -- cancelling


@pytest.mark.parametrize("modern", [False, True])
async def test_a_cancelled_request_gets_no_answer_and_its_server_is_told(modern: bool) -> None:
    transport = ScriptedTransport(SILENT_CALLS)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        ask = ear.ask_modern if modern else ear.ask
        call = asyncio.ensure_future(ask("tools/call", {"name": "echo"}, b'"mine"'))
        asked = await transport.hears("tools/call")
        ear.tell("notifications/cancelled", {"requestId": "mine", "reason": "changed my mind"})
        ear.tell("notifications/cancelled", {"requestId": "mine"})
        assert await call == {}
        assert (await transport.hears("notifications/cancelled"))["params"]["requestId"] == asked["id"]
        assert (await ask("tools/list", None, b'"mine"'))["result"], "the id is free again"


async def test_a_request_that_is_withdrawn_as_its_channel_ends_is_cancelled() -> None:
    """Both in one turn: the task must not go on as if only its client had changed its mind."""
    transport = ScriptedTransport(SILENT_CALLS)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        call = asyncio.ensure_future(ear.ask("tools/call", {"name": "echo"}, b"7"))
        await transport.hears("tools/call")
        ear.tell("notifications/cancelled", {"requestId": 7})
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()


async def test_a_client_cancels_its_own_requests_only() -> None:
    transport = ScriptedTransport(SILENT_CALLS)
    async with bridged({"up": transport}) as bridge:
        ear, other = Ear(bridge.server), Ear(bridge.server)
        await ear.initialize()
        call = asyncio.ensure_future(ear.ask("tools/call", {"name": "echo"}, b"7"))
        asked = await transport.hears("tools/call")
        other.tell("notifications/cancelled", {"requestId": 7})
        for params in (None, {}, {"requestId": "7"}, {"requestId": None}, {"requestId": 8}, [7]):
            ear.tell("notifications/cancelled", params)
        ear.tell("notifications/of/another/kind")
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})
        assert (await call)["result"] == {"content": []}


async def test_a_cancellation_that_comes_too_late_concerns_no_later_request() -> None:
    """Some clients use an id again: what they cancelled was the one before."""
    async with bridged({"up": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        for _ in range(2):
            assert (await ear.ask("tools/call", {"name": "echo"}, b"7"))["result"]
            ear.tell("notifications/cancelled", {"requestId": 7})


async def test_what_a_client_has_under_way_ends_with_it() -> None:
    transport = ScriptedTransport(SILENT_CALLS)
    async with bridged({"up": transport}) as bridge:
        ear, other = Ear(bridge.server), Ear(bridge.server)
        for each in (ear, other):
            await each.initialize()
        gone = asyncio.ensure_future(ear.ask("tools/call", {"name": "echo"}))
        stays = asyncio.ensure_future(other.ask("tools/call", {"name": "echo"}))
        await transport.hears("tools/call", times=2)
        ear.leave()
        await asyncio.wait([gone])
        assert gone.cancelled()
        await transport.hears("notifications/cancelled")
        assert not stays.done()
        stays.cancel()
        await asyncio.wait([stays])
        assert stays.cancelled(), "whose task is cancelled is not answered"


# -- roots


@pytest.mark.parametrize("share", ["shared", "session", "project"])
async def test_a_change_of_roots_is_told_to_the_instances_that_the_client_uses(share: str) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with bridged({"up": transport}, servers={"up": {"share": share}}) as bridge:
        lines = []
        for name in ("one", "two"):
            ear = Ear(bridge.server)
            opening = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {"name": name}}
            await ear.ask("initialize", opening)
            ear.tell("notifications/initialized")
            before = {id(line) for line in transport.lines if line.asked("tools/call")}
            call = asyncio.ensure_future(ear.ask("tools/call", {"name": "up__echo"}))
            if share == "project":
                asked = await ear.hears("roots/list")
                answer = {"id": asked["id"], "result": {"roots": [{"uri": f"file:///{name}"}]}}
                bridge.server.answered(ear.client, decode_frame(json.dumps(answer).encode()))
            assert "result" in await call
            [line] = [line for line in transport.lines if line.asked("tools/call") and id(line) not in before] or lines
            lines.append(line)
        ear.tell("notifications/roots/list_changed")
        assert len(lines[1].asked("notifications/roots/list_changed")) == 1
        told = [line for line in transport.lines if line.asked("notifications/roots/list_changed")]
        assert told == [lines[1]]
        assert (lines[0] is lines[1]) == (share == "shared")


# -- levels, subscriptions, streams


async def test_each_client_has_a_log_level_of_its_own_and_hears_of_its_own_calls() -> None:
    transport = ScriptedTransport(RESOURCEFUL, **{"tools/call": SILENCE})
    async with bridged({"up": transport}) as bridge:
        strict, chatty, silent = (Ear(bridge.server) for _ in range(3))
        for ear in (strict, chatty, silent):
            await ear.initialize()
        assert (await strict.ask("logging/setLevel", {"level": "error"}))["result"] == {}
        wanted = (await transport.hears("logging/setLevel"))["params"]
        assert wanted == {"level": "debug"}, "the others set none, and must not get less for that"
        await chatty.ask("logging/setLevel", {"level": "debug"})
        for number, ear in enumerate((strict, chatty, silent), start=1):
            call = asyncio.ensure_future(ear.ask("tools/call", {"name": "echo"}))
            asked = await transport.hears("tools/call", times=number)
            transport.line.says("notifications/message", level="info", data=f"info {number}")
            transport.line.says("notifications/message", level="alert", data=f"alert {number}")
            transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
            await call
        assert [message["params"]["data"] for message in strict.meanwhile] == ["alert 1"]
        assert [message["params"]["data"] for message in chatty.meanwhile] == ["info 2", "alert 2"]
        said = [message["params"]["data"] for message in silent.meanwhile]
        assert said == ["info 3", "alert 3"], "it set no level: then the server decides what to send"
        transport.line.says("notifications/message", level="alert", data="of whom?")
        assert strict.told == chatty.told == silent.told == []


async def test_a_message_of_no_call_goes_to_the_only_client() -> None:
    """With other clients it might tell of their calls."""
    transport = ScriptedTransport(RESOURCEFUL)
    async with bridged({"up": transport}) as bridge:
        stays, leaves = Ear(bridge.server), Ear(bridge.server)
        for ear, level in ((stays, "error"), (leaves, "debug")):
            await ear.initialize()
            await ear.ask("logging/setLevel", {"level": level})
        await transport.hears("logging/setLevel", times=1)
        leaves.leave()
        transport.line.says("notifications/message", level="info", data=1)
        transport.line.says("notifications/message", level="alert", data=2)
        assert [message["params"]["data"] for message in stays.told] == [2]


async def test_a_server_is_asked_for_the_least_severe_level_that_anybody_wants() -> None:
    transport = ScriptedTransport(RESOURCEFUL)
    async with bridged({"up": transport}) as bridge:
        first, second = Ear(bridge.server), Ear(bridge.server)
        steps: list[tuple[Any, str]] = [
            (lambda: first.ask("logging/setLevel", {"level": "error"}), "debug"),  # the second has set none
            (lambda: second.ask("logging/setLevel", {"level": "info"}), "info"),
            (lambda: Ear(bridge.server).initialize(), "debug"),
        ]
        for ear in (first, second):
            await ear.initialize()
        for number, (step, level) in enumerate(steps, start=1):
            await step()
            assert (await transport.hears("logging/setLevel", times=number))["params"] == {"level": level}
        [third] = bridge.server.listeners.clients - {first.client, second.client}
        leaving = [(third, "info"), (second, "error"), (first, "emergency")]
        for number, (client, level) in enumerate(leaving, start=4):
            bridge.server.close(client if client is third else client.client)
            assert (await transport.hears("logging/setLevel", times=number))["params"] == {"level": level}


async def test_whoever_comes_when_nobody_sets_a_level_any_more_gets_all_that_servers_send() -> None:
    """The session with the server is still at the level of one that has left."""
    transport = ScriptedTransport(RESOURCEFUL)
    async with bridged({"up": transport}) as bridge:
        leaves = Ear(bridge.server)
        await leaves.initialize()
        await leaves.ask("logging/setLevel", {"level": "error"})
        await transport.hears("logging/setLevel")
        leaves.leave()
        await transport.hears("logging/setLevel", times=2)
        await Ear(bridge.server).initialize()
        assert (await transport.hears("logging/setLevel", times=3))["params"] == {"level": "debug"}


@pytest.mark.parametrize("params", [None, {}, {"level": "chatty"}, {"level": 5}])
async def test_a_level_nobody_knows_is_refused(params: Any) -> None:
    async with bridged({}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        assert code(await ear.ask("logging/setLevel", params)) == -32602
        assert ear.client.log_level == ""


async def test_the_log_level_of_a_modern_request_holds_for_it_alone() -> None:
    transport = ScriptedTransport(SILENT_CALLS)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        level = {"io.modelcontextprotocol/logLevel": "warning"}
        call = asyncio.ensure_future(ear.ask_modern("tools/call", {"name": "echo"}, **level))
        asked = await transport.hears("tools/call")
        transport.line.says("notifications/message", level="info", data=1)
        transport.line.says("notifications/message", level="error", data=2)
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
        await call
        transport.line.says("notifications/message", level="error", data=3)
        assert [message["params"]["data"] for message in ear.meanwhile] == [2]
        assert ear.told == []


async def test_a_modern_request_brings_the_shared_session_to_its_level_before_it_goes_out() -> None:
    """A session has one level, so it is the most verbose that anyone wants, also where a session wants less."""
    transport = ScriptedTransport(RESOURCEFUL)
    async with bridged({"up": transport}) as bridge:
        strict = Ear(bridge.server)
        await strict.initialize()
        await strict.ask("logging/setLevel", {"level": "error"})
        await transport.hears("logging/setLevel")
        for level in ("info", "warning", "debug"):
            meta = {"io.modelcontextprotocol/logLevel": level}
            await strict.ask_modern("tools/call", {"name": "echo"}, **meta)
        heard = [
            message for message in transport.line.heard if message.get("method") in ("logging/setLevel", "tools/call")
        ]
        assert [message["params"].get("level", "call") for message in heard] == [
            *("error", "info", "call", "call"),
            *("debug", "call"),
        ]
        strict.leave()
        assert bridge.pool.upstreams["up"].wanted.log_level == "debug", "who asks so will ask so again"


async def test_the_last_word_of_the_progress_comes_before_the_answer() -> None:
    """A burst is held back, but what it ended with is told."""
    transport = ScriptedTransport(SILENT_CALLS)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        params = {"name": "echo", "_meta": {"progressToken": "t"}}
        with standing_time() as go_on:  # the call takes its clock when it begins
            call = asyncio.ensure_future(ear.ask("tools/call", params))
            asked = await transport.hears("tools/call")
            for number in range(1, 201):
                go_on(0.001)
                transport.line.says("notifications/progress", progressToken=asked["id"], progress=number, total=200)
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
        assert "result" in await call
        assert len(ear.meanwhile) < 30
        assert ear.meanwhile[-1]["params"] == {"progressToken": "t", "progress": 200, "total": 200}


@pytest.mark.parametrize("server", [LEGACY_SERVER, MODERN_SERVER], ids=["legacy", "modern"])
@pytest.mark.parametrize("client", ["legacy", "modern", "modern that can be asked"])
async def test_answers_that_nobody_asked_for_reach_no_server(server: Any, client: str) -> None:
    """A server could take them for the user's; a state that reaches it was sealed here."""
    transport = ScriptedTransport(server)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        params = {"name": "echo", "arguments": {"a": 1}, "inputResponses": {"k": {"action": "accept"}}}
        if client == "legacy":
            await ear.initialize()
            answer = await ear.ask("tools/call", {**params, "requestState": "own"})
        else:
            declared = {"elicitation": {"form": {}}} if client.endswith("asked") else {}
            answer = await ear.ask_modern("tools/call", params, **{CAPABILITIES: declared})
            forged = await ear.ask_modern("tools/call", {**params, "requestState": "own"}, **{CAPABILITIES: declared})
            assert code(forged) == -32602
        assert "result" in answer
        [asked] = transport.asked("tools/call")
        assert {name: value for name, value in asked["params"].items() if name != "_meta"} == {
            "name": "echo",
            "arguments": {"a": 1},
        }


async def test_questions_of_two_modern_calls_on_one_channel_come_as_answers_to_their_own_calls() -> None:
    """Issue 3: a person approves the call that asks, and no other."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    able = {CAPABILITIES: {"elicitation": {"form": {}}}}
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        calls = {
            words: asyncio.ensure_future(
                ear.ask_modern(
                    "tools/call", {"name": "echo", "arguments": {"w": words}}, b'"%b"' % words.encode(), **able
                )
            )
            for words in ("one", "two")
        }
        await transport.hears("tools/call", times=2)
        lines = {
            line.asked("tools/call")[0]["params"]["arguments"]["w"]: line
            for line in transport.lines
            if line.asked("tools/call")
        }
        assert set(lines) == {"one", "two"}, "each on a session of its own"
        for words, line in lines.items():
            schema = {"type": "object"}
            params = {"message": f"of {words}", "requestedSchema": schema}
            line.gives({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params})
        for words, call in calls.items():
            question = (await call)["result"]["inputRequests"]["q1"]
            assert question["params"]["message"] == f"[up] of {words}"


async def test_a_server_that_may_never_ask_is_told_so_in_either_era() -> None:
    """And what it asks all the same is put to nobody, whoever calls."""
    question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
    asking = {"resultType": "input_required", "inputRequests": {"k": question}, "requestState": "s"}
    transport = ScriptedTransport(MODERN_SERVER, **{"tools/call": asking})
    able = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
    async with bridged({"up": transport}, servers={"up": {"questions": "never"}}) as bridge:
        modern, legacy = Ear(bridge.server), Ear(bridge.server)
        info = {"name": "ear", "version": "1"}
        await legacy.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": able, "clientInfo": info})
        for answer in (
            await modern.ask_modern("tools/call", {"name": "echo"}, **{CAPABILITIES: able}),
            await legacy.ask("tools/call", {"name": "echo"}),
        ):
            assert answer["result"]["isError"], answer
            assert "may not ask for elicitation: servers.up.questions" in answer["result"]["content"][0]["text"]
        assert legacy.meanwhile == []
        for asked in transport.asked("tools/call"):
            assert set(asked["params"]["_meta"][CAPABILITIES]) == {"extensions"}


async def test_each_client_hears_of_its_own_subscriptions_and_the_server_is_told_once() -> None:
    transport = ScriptedTransport(RESOURCEFUL)
    async with bridged({"up": transport}) as bridge:
        first, second, third = (Ear(bridge.server) for _ in range(3))
        for ear in (first, second, third):
            await ear.initialize()
        for ear, uri in ((first, "memo://1"), (first, "memo://1"), (second, "memo://1"), (third, "memo://2")):
            assert (await ear.ask("resources/subscribe", {"uri": uri}))["result"] == {}
        await transport.hears("resources/subscribe", times=2)
        transport.line.says("notifications/resources/updated", uri="memo://1")
        updated = "notifications/resources/updated"
        assert [len([m for m in ear.told if m["method"] == updated]) for ear in (first, second, third)] == [1, 1, 0]
        assert len(transport.asked("resources/subscribe")) == 2

        await first.ask("resources/unsubscribe", {"uri": "memo://1"})
        await first.ask("resources/unsubscribe", {"uri": "memo://1"})
        await first.ask("resources/unsubscribe", {"uri": "never://subscribed"})
        third.leave()  # its subscription goes with it
        assert (await transport.hears("resources/unsubscribe"))["params"] == {"uri": "memo://2"}
        assert len(transport.asked("resources/unsubscribe")) == 1, "the second still wants the first"
        await second.ask("resources/unsubscribe", {"uri": "memo://1"})
        await transport.hears("resources/unsubscribe", times=2)


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_who_is_kept_apart_subscribes_where_its_calls_go(modern: bool) -> None:
    """What one client's calls change is no news to another, whose server is another."""
    transport = ScriptedTransport(RESOURCEFUL)
    servers = {"up": {"share": "session", "instance_idle": 0.01}}
    async with bridged({"up": transport}, servers=servers) as bridge:
        ears = [Ear(bridge.server) for _ in range(2)]
        streams: list[asyncio.Future[Any]] = []
        with standing_time():  # what takes the server long counts as a change
            for ear in ears:
                if modern:
                    wanted = {"notifications": {"resourceSubscriptions": ["memo://1"]}}
                    streams.append(asyncio.ensure_future(ear.ask_modern("subscriptions/listen", wanted, b'"s"')))
                    await ear.hears("notifications/subscriptions/acknowledged")
                else:
                    await ear.initialize()
                    assert (await ear.ask("resources/subscribe", {"uri": "memo://1"}))["result"] == {}
        subscribed = [line for line in transport.lines if line.asked("resources/subscribe")]
        assert len(subscribed) == 2
        assert transport.lines[0] not in subscribed
        ask = ears[0].ask_modern if modern else ears[0].ask
        await ask("tools/call", {"name": "echo"}, b"2")
        [called] = [line for line in transport.lines if line.asked("tools/call")]
        assert called in subscribed
        called.says("notifications/resources/updated", uri="memo://1")
        await ears[0].hears("notifications/resources/updated")
        updates = [message for message in [*ears[1].told, *ears[1].meanwhile] if "updated" in message["method"]]
        assert not updates
        for stream in streams:
            stream.cancel()
        if streams:
            await asyncio.wait(streams)
        for ear in ears:
            ear.leave()
        while any(line.is_open for line in subscribed):
            await asyncio.sleep(0.01)


async def test_what_cannot_be_subscribed_to_is_refused() -> None:
    async with bridged({"up": ScriptedTransport(RESOURCEFUL), "other": ScriptedTransport(ELSEWHERE)}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        assert code(await ear.ask("resources/subscribe", {"uri": "nobody://x"})) == -32002
        assert code(await ear.ask("resources/subscribe", {})) == -32602
        assert code(await ear.ask("resources/unsubscribe", {"uri": 5})) == -32602


async def test_a_listen_stream_acknowledges_delivers_and_ends_with_the_bridge() -> None:
    """MCP 2026-07-28, subscriptions/listen."""
    transport = ScriptedTransport(RESOURCEFUL)
    async with bridged({"up": transport, "other": ScriptedTransport(ELSEWHERE)}) as bridge:
        ear, session = Ear(bridge.server), Ear(bridge.server)
        await session.initialize()
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["memo://1", "nobody://x"]}
        stream = asyncio.ensure_future(ear.ask_modern("subscriptions/listen", {"notifications": wanted}, b'"s"'))
        acknowledged = await ear.hears("notifications/subscriptions/acknowledged")
        honoured = {"toolsListChanged": True, "resourceSubscriptions": ["memo://1"]}
        assert acknowledged["params"]["notifications"] == honoured
        await transport.hears("resources/subscribe")
        transport.line.says("notifications/resources/updated", uri="memo://1")
        transport.line.says("notifications/resources/updated", uri="memo://2")
        transport.script["tools/list"] = {"tools": []}
        transport.line.says("notifications/tools/list_changed")
        await ear.hears("notifications/tools/list_changed")
        await session.hears("notifications/tools/list_changed")
        stamps = {message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for message in ear.meanwhile}
        assert stamps == {"s"}
        assert len(ear.meanwhile) == 3
        assert bridge.status()["clients"] == 3
    assert (await stream)["result"]["resultType"] == "complete"


async def test_a_listen_stream_is_ended_by_its_client() -> None:
    transport = ScriptedTransport(RESOURCEFUL)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        wanted = {"notifications": {"resourceSubscriptions": ["memo://1"]}}
        stream = asyncio.ensure_future(ear.ask_modern("subscriptions/listen", wanted, b"4"))
        await transport.hears("resources/subscribe")
        ear.tell("notifications/cancelled", {"requestId": 4})
        assert await stream == {}
        await transport.hears("resources/unsubscribe")
        assert not bridge.server.listeners.listens


@pytest.mark.parametrize("params", [{}, {"notifications": 5}, {"notifications": {"resourceSubscriptions": "x"}}])
async def test_a_listen_request_of_the_wrong_shape_is_refused(params: Any) -> None:
    async with bridged({}) as bridge:
        assert code(await Ear(bridge.server).ask_modern("subscriptions/listen", params)) == -32602


async def test_a_change_is_told_once_and_only_if_it_can_be_seen() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with bridged({"up": transport}, servers={"up": {"tools": {"exclude": ["hidden*"]}}}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        shown: Any = LEGACY_SERVER["tools/list"]
        transport.script["tools/list"] = {
            "tools": [*shown["tools"], {"name": "hidden", "inputSchema": {"type": "object"}}]
        }
        transport.line.says("notifications/tools/list_changed")
        await transport.hears("tools/list", times=2)
        transport.script["tools/list"] = {"tools": []}
        transport.line.says("notifications/tools/list_changed")
        await ear.hears("notifications/tools/list_changed")
        assert len(ear.told) == 1


async def test_an_update_without_a_uri_is_ignored() -> None:
    transport = ScriptedTransport(RESOURCEFUL)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        transport.line.says("notifications/resources/updated")
        transport.line.says("notifications/resources/updated", uri=5)
        assert (await ear.ask("ping"))["result"] == {}
        assert ear.told == []


async def test_an_error_nobody_thought_of_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise of the core: it never raises but when it is cancelled."""
    async with bridged({"up": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()

        async def breaks(call: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(bridge.pool.upstreams["up"], "request", breaks)
        assert code(await ear.ask("tools/call", {"name": "echo"})) == -32603


async def test_calls_of_the_library_go_the_same_way() -> None:
    from mcpbridge.engine.requests import RequestFailed

    transport = ScriptedTransport(RESOURCEFUL, **{"prompts/get": Refusal(-1, "no greeting", {"why": "closed"})})
    async with bridged({"up": transport}) as bridge:
        assert (await bridge.request("tools/call", {"name": "echo"}))["content"][0]["text"] == "done"
        with pytest.raises(RequestFailed, match="no greeting") as caught:
            await bridge.request("prompts/get", {"name": "greet"})
        assert (caught.value.code, caught.value.data) == (-1, {"why": "closed"})
        with pytest.raises(RequestFailed, match="Method not found"):
            await bridge.request("nonsense", {})
        with anyio.fail_after(30):
            many = await asyncio.gather(*(bridge.request("tools/call", {"name": "echo"}) for _ in range(50)))
        assert len(many) == 50
