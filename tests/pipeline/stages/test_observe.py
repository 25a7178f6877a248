"""What is told of each call: how it ended, told from bytes, and the record of it for those who want one."""

import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import ApprovalRefused, Overloaded, UpstreamAnswered, UpstreamGone, UpstreamTimeout
from mcpbridge.pipeline.observability.metrics import Series, error_name, outcome_of_error, outcome_of_result, says_error
from mcpbridge.protocol.body import Body
from mcpbridge.storage.call_log.format import CallRecord
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, SILENCE, Refusal, ScriptedTransport

Message = dict[str, Any]


# -- pure

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just('"isError":true'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.just("isError"), inner, max_size=4),
    max_leaves=12,
)
results = st.dictionaries(st.sampled_from(["content", "structuredContent", "isError", "_meta"]), json_values)


@given(results, st.sampled_from([None, 1]), st.booleans())
def test_a_result_says_that_it_is_an_error_exactly_when_its_own_member_does(
    result: Message, indent: int | None, escapes: bool
) -> None:
    body = Body(json.dumps(result, indent=indent, ensure_ascii=escapes).encode())
    assert says_error(body) == (result.get("isError") is True)
    assert (outcome_of_result(body) == "tool_error") == says_error(body)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_the_member_is_found_anywhere_in_a_large_result(where: int) -> None:
    content = [{"type": "text", "text": "x" * 500_000}]
    members = [("content", content), ("more", content)]
    result = dict([*members[:where], ("isError", True), *members[where:]])
    assert says_error(Body(json.dumps(result).encode()))
    assert outcome_of_result(Body(json.dumps({"content": content}).encode())) == "ok"


def test_a_question_is_no_result_yet() -> None:
    assert outcome_of_result(Body(b'{"resultType":"input_required","requestState":"s"}')) == "asked"
    assert outcome_of_result(Body(b'{"content":[{"type":"text","text":"\\"input_required\\""}]}')) == "ok"


@pytest.mark.parametrize(
    ("error", "outcome", "name"),
    [
        (ApprovalRefused("no"), "refused", "ApprovalRefused"),
        (Overloaded("full"), "refused", "Overloaded"),
        (UpstreamTimeout("s", 5), "failed", "UpstreamTimeout"),
        (UpstreamAnswered("s", b'{"code":-32000,"message":"x"}'), "failed", "-32000"),
        (KeyError("secret"), "failed", "InternalError"),
        (anyio.get_cancelled_exc_class, "cancelled", "cancelled"),
    ],
)
async def test_errors_are_named_without_what_they_say(error: Any, outcome: str, name: str) -> None:
    error = error if isinstance(error, BaseException) else error()()
    assert (outcome_of_error(error), error_name(error)) == (outcome, name)


# -- through the bridge


def only(bridge: BridgeToScripts) -> Series:
    (series,) = bridge.metrics
    return series


async def test_calls_are_counted_by_how_they_ended() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with bridged({"old": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        params = {"name": "old__echo", "arguments": {"text": "hello"}}
        await ear.ask("tools/call", params)
        transport.script["tools/call"] = {"content": [], "isError": True}
        await ear.ask("tools/call", params)
        transport.script["tools/call"] = Refusal(-32050, "not today")
        await ear.ask("tools/call", params)
        transport.script["tools/call"] = UpstreamGone("old", "it broke")
        await ear.ask("tools/call", params)
        series = only(bridge)
        assert (series.server, series.tool, series.method, series.client) == ("old", "old/echo", "tools/call", "ear")
        assert series.outcomes["ok"] == series.outcomes["tool_error"] == 1
        assert series.outcomes["failed"] == 2
        assert series.failed["-32050"] == 1
        assert series.bytes_in == 4 * len('{"text": "hello"}')
        assert series.upstream.count == series.durations.count == 4
        assert 0 < series.upstream.seconds <= series.durations.seconds
        (status,) = bridge.status()["servers"]
        assert (status["calls"], status["errors"]) == (4, 3)
        assert set(status["latency"]) == {"p50", "p95"}


async def test_a_refusal_counts_too_and_reaches_no_server() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with bridged({"old": transport}, calls={"rate_limit": "1/h"}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        for _ in range(2):
            await ear.ask("tools/call", {"name": "old__echo", "arguments": {}})
        series = only(bridge)
        assert series.outcomes == {"ok": 1, "refused": 1}
        assert series.refused == {"RateLimited": 1}
        assert series.upstream.count == 1
        assert len(transport.asked("tools/call")) == 1


async def test_a_question_of_the_server_is_one_request_and_its_answer_another() -> None:
    question = {"method": "elicitation/create", "params": {"mode": "form", "message": "sure?", "requestedSchema": {}}}
    asking = {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"}
    transport = ScriptedTransport({**MODERN_SERVER, "tools/call": asking})
    async with bridged({"new": transport}) as bridge:
        ear = Ear(bridge.server)
        able = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        params: Message = {"name": "new__echo", "arguments": {}}
        result = (await ear.ask_modern("tools/call", params, **able))["result"]
        assert result["resultType"] == "input_required"
        assert only(bridge).outcomes == {"asked": 1}
        transport.script["tools/call"] = {"resultType": "complete", "content": []}
        answers = {"q": {"action": "accept", "content": {}}}
        again = {**params, "requestState": result["requestState"], "inputResponses": answers}
        await ear.ask_modern("tools/call", again, **able)
        assert only(bridge).outcomes == {"asked": 1, "ok": 1}


async def test_requests_beside_tool_calls_count_by_method_alone() -> None:
    """Names of prompts and addresses of resources are no series: there may be any number of them."""
    declared = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"prompts": {}, "resources": {}, "custom": {}},
        "serverInfo": {},
    }
    script = {
        "initialize": declared,
        "prompts/list": {"prompts": [{"name": "greet"}]},
        "prompts/get": {"messages": []},
        "resources/list": {"resources": [{"uri": f"memo://{number}", "name": "memo"} for number in range(3)]},
        "resources/templates/list": {"resourceTemplates": []},
        "resources/read": {"contents": []},
        "custom/thing": {},
    }
    async with bridged({"old": ScriptedTransport(script)}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        with bridge.events.subscribe() as events:
            await ear.ask("prompts/get", {"name": "old__greet"})
            for number in range(3):
                await ear.ask("resources/read", {"uri": f"memo://{number}"})
            ear.client.view = "old"
            await ear.ask("custom/thing")
            with anyio.fail_after(30):
                records = [(await anext(events)).data for _ in range(5)]
        counted = {(series.method, series.tool, series.calls) for series in bridge.metrics}
        assert counted == {("prompts/get", "", 1), ("resources/read", "", 3), ("other", "", 1)}
        assert [record.method for record in records if isinstance(record, CallRecord)][-1] == "custom/thing"


async def test_whoever_listens_gets_the_record_of_each_call() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    servers = {"old": {"log_content": True}}
    async with bridged({"old": transport}, servers=servers) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        await ear.ask("tools/call", {"name": "old__echo", "arguments": {"n": 1}})  # nobody listens yet
        with bridge.events.subscribe() as events:
            meta = {"mcpbridge/run": "night"}
            await ear.ask("tools/call", {"name": "old__echo", "arguments": {"n": 2}, "_meta": meta})
            with anyio.fail_after(30):
                event = await anext(events)
        record = event.data
        assert isinstance(record, CallRecord)
        assert (event.run, event.session, event.tool) == ("night", record.session, "old/echo")
        assert (record.method, record.server, record.tool) == ("tools/call", "old", "old/echo")
        assert (record.client, record.principal, record.run) == ("ear", "", "night")
        assert record.session == ear.client.session.id
        assert (record.outcome, record.error) == ("ok", "")
        assert json.loads(record.arguments) == {"n": 2}
        assert json.loads(record.result) == LEGACY_SERVER["tools/call"]
        assert record.keeps_content
        assert record.seconds > 0


async def test_events_wait_without_content_where_none_is_kept() -> None:
    """A listener may fall a thousand calls behind, each of megabytes."""
    async with bridged({"old": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        with bridge.events.subscribe() as events:
            await ear.ask("tools/call", {"name": "old__echo", "arguments": {"n": 2}})
            with anyio.fail_after(30):
                record = (await anext(events)).data
        assert isinstance(record, CallRecord)
        assert (record.arguments, record.result) == (b"", b"")
        assert record.sent == len(b'{"n": 2}')
        assert record.received == len(json.dumps(LEGACY_SERVER["tools/call"]))


async def test_methods_and_codes_of_any_name_make_no_series_of_their_own() -> None:
    declared = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "made": {}}, "serverInfo": {}}
    refusals = {"made/up": Refusal(-7, "no"), "tools/call": Refusal(-7, "no")}
    script = {**LEGACY_SERVER, "initialize": declared, **refusals}
    async with bridged({"old": ScriptedTransport(script)}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        await ear.ask("made/up", {})
        await ear.ask("tools/call", {"name": "old__echo", "arguments": {}})
        assert {series.method for series in bridge.metrics} == {"other", "tools/call"}
        assert all(set(series.failed) == {"other code"} for series in bridge.metrics)


async def test_a_call_that_its_client_leaves_is_counted_as_cancelled() -> None:
    transport = ScriptedTransport({**LEGACY_SERVER, "tools/call": SILENCE})
    async with bridged({"old": transport}, calls={"late": "cancel"}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ear.ask, "tools/call", {"name": "old__echo", "arguments": {}}, b"9")
                while not transport.asked("tools/call"):
                    await anyio.sleep(0)
                ear.tell("notifications/cancelled", {"requestId": 9})
        assert only(bridge).outcomes == {"cancelled": 1}
        assert only(bridge).errors == 0


async def test_nothing_is_counted_where_metrics_are_off() -> None:
    async with bridged({"old": ScriptedTransport(LEGACY_SERVER)}, observe={"metrics": False}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        await ear.ask("tools/call", {"name": "old__echo", "arguments": {}})
        assert len(bridge.metrics) == 0
        assert "calls" not in bridge.status()["servers"][0]
