"""Servers, clients, models and functions of the program that do what they should not, while a program makes calls."""

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge import Bridge
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.json_values import decoded
from mcpbridge.core.tool_calls_and_results import CallResult, PausedCall, ToolCall
from mcpbridge.library.agent.calls import Finished
from mcpbridge.library.agent.models.model import ModelRequest
from mcpbridge.library.calls.call import CallbackFailed, result_of
from mcpbridge.library.calls.run_events import (
    ApprovalPending,
    CallProgress,
    CallReturned,
    RunEvent,
    RunFailed,
    RunOutcome,
)
from mcpbridge.library.client.client import Client
from mcpbridge.library.define_tools.decorator import tool
from mcpbridge.library.define_tools.human import human_tool, manual_tool
from mcpbridge.pipeline.hooks.call import HookCall, before
from support.front_clients import http_server
from support.models.agent_runs import HELLO, bridge_with, texts

SERVER = """
import json, sys
made = 0
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked.get("method"), asked.get("params") or {}
    if "id" not in asked:
        continue
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "h", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        made += 1
        arguments = params.get("arguments") or {}
        for told in arguments.get("progress", []):
            token = params["_meta"]["progressToken"]
            say(method="notifications/progress", params={"progressToken": token, **told})
        result = {"content": [{"type": "text", "text": f"made {made}"}], **arguments.get("result", {})}
    else:
        result = {}
    say(id=asked["id"], result=result)
"""
"""A server whose tool says in its result, and meanwhile, what its arguments tell it to."""

Wanted = tuple[str, str, dict[str, Any] | str]
"""A call as the model writes it: its id, the tool, the arguments."""


class Scripted:
    """A model that wants these calls, turn by turn."""

    format = "openai"

    def __init__(self, *turns: list[Wanted]) -> None:
        self._turns = turns
        self.offered: list[list[str]] = []

    async def __call__(self, request: ModelRequest) -> Any:
        self.offered.append(sorted(one["function"]["name"] for one in request.tools))
        turn = sum(message.get("role") == "assistant" for message in request.messages)
        message: dict[str, Any] = {"role": "assistant", "content": "Done."}
        if turn < len(self._turns):
            message["tool_calls"] = [
                {
                    "id": id_,
                    "type": "function",
                    "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
                }
                for id_, name, given in self._turns[turn]
            ]
        return {"choices": [{"message": message}]}


@asynccontextmanager
async def beside(tmp_path: Path, *tools: Any, **settings: Any) -> AsyncGenerator[Bridge]:
    """A bridge with these tools, and the server `h`."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    server = {"command": sys.executable, "args": ["-ES", str(script)]}
    with anyio.fail_after(60):
        async with bridge_with(tmp_path, *tools, servers={"h": server}, **settings) as bridge:
            assert await bridge.settled(30)
            yield bridge


def asking() -> Any:
    """A tool that waits for an answer, and says it."""

    def on_tool_called(q: str) -> str | None:
        return None

    def on_response_received(response: str) -> str:
        return f"A:{response}"

    return human_tool(on_tool_called, on_response_received, name="ask")


class Danger:
    """A tool that somebody must agree to, and what was done with it."""

    def __init__(self) -> None:
        self.done: list[int] = []

    @property
    def tool(self) -> Any:
        @tool(requires_approval=True)
        def danger(x: int) -> str:
            """Do something."""
            self.done.append(x)
            return f"did {x}"

        return danger


def told(outcome: RunOutcome) -> list[str]:
    """What the model was told its calls came to."""
    return [message["content"] for message in outcome.messages if message["role"] == "tool"]


async def gone_on(bridge: Bridge, outcome: RunOutcome, **settings: Any) -> RunOutcome:
    return await bridge.run(Scripted(), outcome.messages, run=outcome.run, **settings)


# -- what servers and clients say of pauses


@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize("is_known", [False, True], ids=["of nothing", "of another call"])
@pytest.mark.parametrize("kind", ["approval", "paused"])
async def test_a_server_cannot_have_a_run_pause(kind: str, is_known: bool, is_error: bool, tmp_path: Path) -> None:
    async with beside(tmp_path, asking(), Danger().tool) as bridge:
        other = await bridge.run(Scripted([("c1", "danger", {"x": 1}), ("c1", "ask", {"q": "?"})]), HELLO)
        ids = {one.kind: one.id for one in other.paused}
        said: Any = ids["approval" if kind == "approval" else "human"] if is_known else "nothing"
        meta = {f"mcpbridge/{kind}": said if kind == "approval" else {"id": said}}
        call = ("c1", "h__say", {"result": {"_meta": meta, "isError": is_error}})
        outcome = await bridge.run(Scripted([call]), HELLO)
    assert (outcome.status, texts(outcome.results)) == ("done", ["made 1"])


async def test_what_a_server_says_in_the_wrong_shape_costs_no_run(tmp_path: Path) -> None:
    said = [{"content": 5}, {"_meta": 5}, {"content": [1, None]}, {"_meta": {"mcpbridge/result": 1}}]
    calls: list[Wanted] = [(f"c{place}", "h__say", {"result": one}) for place, one in enumerate(said)]
    told_meanwhile = [{"progress": 1, "_meta": 5, "message": 7}]
    async with beside(tmp_path) as bridge:
        outcome = await bridge.run(Scripted([*calls, ("c9", "h__say", {"progress": told_meanwhile})]), HELLO)
    assert (outcome.status, len(outcome.results)) == ("done", 5)
    for raw in said:
        assert result_of(raw).text == ""


def clients_of(*names: str) -> dict[str, Any]:
    return {"tokens": [{"name": name, "sha256": hashlib.sha256(token_of(name).encode()).hexdigest()} for name in names]}


def token_of(name: str) -> str:
    return f"correct horse battery {name}"


async def test_a_client_has_no_part_in_the_run_of_a_program(tmp_path: Path) -> None:
    """Neither one of the same principal that names its call the same, nor another's that names its run the same."""
    settings = {"http": clients_of("ada", "bob"), "builtin": {"enable": ["final-answer"]}}
    async with (
        beside(tmp_path, asking(), Danger().tool, **settings) as bridge,
        http_server(bridge, bridge.settings.http) as served,
        Client(served.origin, token=token_of("ada")) as ada,
        Client(served.origin, token=token_of("bob")) as bob,
    ):
        meta: Any = {"mcpbridge/run": "P", "mcpbridge/call": "k1"}
        (final,) = await bridge.list_tools(only=["mcpbridge/final-answer"])

        async def meddle(_: CallResult[Any]) -> None:
            waits: Any = {**meta, "mcpbridge/approvals": "pause"}
            await bob.call_tool("danger", {"x": 666}, meta=waits)
            await bob.call_tool(final.name, {"answer": "Bob says so."}, meta=meta)

        paused = await bridge.run(Scripted([("k1", "ask", {"q": "mine"})]), HELLO, user="ada", run="P")
        await ada.call_tool("ask", {"q": "other"}, meta=meta)
        waiting = {call.arguments["q"]: call.id for call in await bridge.paused_calls(user="ada", run="P")}
        await bridge.resume(waiting["other"], "for other", user="ada")
        still = await gone_on(bridge, paused, user="ada")
        assert still.status == "paused"
        await bridge.resume(waiting["mine"], "for mine", user="ada")
        model = Scripted([], [("k2", "h__say", {}), ("k3", final.name, {"answer": "Ada says so."})])
        running = bridge.run(model, still.messages, user="ada", run="P", on_result=meddle)
        heard = [event async for event in running]
        pending = (await bridge.pending_approvals())[0]
    assert (told(running.outcome)[0], running.outcome.status) == ("A:for mine", "done")
    assert (running.outcome.deliverable or {})["answer"] == "Ada says so."
    assert (pending.request.principal, pending.request.arguments) == ("bob", {"x": 666})
    assert [event for event in heard if isinstance(event, ApprovalPending)] == []
    assert 0 < pending.until - time.time() <= 600  # the settings', however the client wants to wait


async def test_an_answer_for_one_tenant_is_not_given_to_another(tmp_path: Path) -> None:
    danger = Danger()
    turn: list[Wanted] = [("c1", "ask", {"q": "?"}), ("c2", "danger", {"x": 1})]
    async with beside(tmp_path, asking(), danger.tool) as bridge:
        runs = {who: await bridge.run(Scripted(turn), HELLO, run="chat-1", tenant=who) for who in ("A", "B")}
        question, approval = runs["B"].paused
        await bridge.resume(question.id, "secret of B")
        await bridge.approve(approval.id)
        still = await gone_on(bridge, runs["A"], tenant="A")
        assert (still.status, danger.done) == ("paused", [])
        assert await bridge.answered("chat-1", "c1", tenant="A") is None
        done = await gone_on(bridge, runs["B"], tenant="B")
    assert (told(done), danger.done) == (["A:secret of B", "did 1"], [1])


# -- what models write


async def test_calls_of_a_turn_that_have_one_id_keep_their_own_answers(tmp_path: Path) -> None:
    turn: list[Wanted] = [("call_0", "ask", {"q": q}) for q in ("one", "two", "two")]
    async with beside(tmp_path, asking()) as bridge:
        paused = await bridge.run(Scripted(turn), HELLO)
        for place, call in enumerate(paused.paused):
            await bridge.resume(call.id, f"{place} {call.arguments['q']}")
        done = await gone_on(bridge, paused)
    assert told(done) == ["A:0 one", "A:1 two", "A:2 two"]


@pytest.mark.parametrize("denied", [0, 1])
async def test_one_of_two_calls_with_one_id_is_denied(denied: int, tmp_path: Path) -> None:
    danger = Danger()
    async with beside(tmp_path, danger.tool) as bridge:
        paused = await bridge.run(Scripted([("c", "danger", {"x": 0}), ("c", "danger", {"x": 1})]), HELLO)
        await bridge.deny(paused.paused[denied].id)
        await bridge.approve(paused.paused[1 - denied].id)
        done = await gone_on(bridge, paused)
    assert (done.status, danger.done) == ("done", [1 - denied])
    assert [result.is_error for result in done.results] == [place == denied for place in (0, 1)]


DEEP = '{"x":' + "[" * 800 + "]" * 800 + "}"


@pytest.mark.parametrize("arguments", ['{"x":1e999}', '{"x":' + "1" * 5000 + "}", DEEP], ids=["far", "long", "deep"])
async def test_arguments_that_python_has_no_number_for_pause_and_go_on(arguments: str, tmp_path: Path) -> None:
    async with beside(tmp_path, manual_tool("man"), manual_tool("both", requires_approval=True)) as bridge:
        paused = await bridge.run(Scripted([("c1", "man", arguments), ("c2", "both", arguments)]), HELLO)
        assert [one.kind for one in paused.paused] == ["manual", "approval"]
        (waiting,) = await bridge.paused_calls()
        assert waiting.arguments == decoded(arguments.encode())
        (pending,) = await bridge.pending_approvals()
        assert pending.request.arguments == decoded(arguments.encode())
        assert (await gone_on(bridge, paused)).paused == paused.paused
        await bridge.resume(waiting.id, {"said": 1})
        await bridge.deny(pending.request.id)
        done = await gone_on(bridge, paused)
    assert (done.status, told(done)[0]) == ("done", '{"said":1}')


async def test_an_id_that_is_no_text_or_very_long_is_one_all_the_same(tmp_path: Path) -> None:
    turn: list[Wanted] = [("a\ud800", "ask", {"q": "1"}), ("i" * 300, "ask", {"q": "2"})]
    async with beside(tmp_path, asking()) as bridge:
        paused = await bridge.run(Scripted(turn), HELLO)
        for call in paused.paused:
            await bridge.resume(call.id, call.arguments["q"])
        assert told(await gone_on(bridge, paused)) == ["A:1", "A:2"]
        for name in ("r" * 201, "\ud800"):
            with pytest.raises(ConfigError, match="characters"):
                bridge.run(Scripted(), HELLO, run=name)


async def test_a_record_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    async with beside(tmp_path, manual_tool("man"), Danger().tool) as bridge:
        call = (await bridge.call_tool("man", {"x": 1})).paused
        assert call is not None
        await bridge.run(Scripted([("c", "danger", {"x": 1})]), HELLO)
        too_deep = msgspec.Raw(b"[" * 5000 + b"]" * 5000)
        record = {"tool": "t", "kind": "manual", "arguments": too_deep, "created": 1.0, "expires": 2.0}
        await bridge.store.put("paused", msgspec.json.encode(record), principal="", expires_in=60)
        await bridge.store.put("paused", b"{}", principal="", expires_in=60)
        await bridge.store.put("approval", b"{}", principal="", expires_in=60)
        assert [one.id for one in await bridge.paused_calls()] == [call.id]
        assert len(await bridge.pending_approvals()) == 1


@given(st.integers(0, 3000), st.sampled_from([b"1", b"1e999", b'"x"', b"1" * 5000]))
def test_json_is_read_or_refused_with_one_error(depth: int, inner: bytes) -> None:
    try:
        value = decoded(b"[" * depth + inner + b"]" * depth)
    except msgspec.DecodeError:
        assert depth > 500
        return
    for _ in range(depth):
        (value,) = value
    assert value is not None


async def test_a_paused_call_that_nobody_answered_in_time_ends_its_run(tmp_path: Path) -> None:
    async with beside(tmp_path, asking()) as bridge:
        paused = await bridge.run(Scripted([("c1", "ask", {"q": "?"})]), HELLO)
        await bridge.store.drop("paused", paused.paused[0].id, principal="")
        done = await gone_on(bridge, paused)
    assert (done.status, done.results[0].is_error) == ("done", True)
    assert "nobody answered in time" in told(done)[0]


async def test_those_who_go_on_with_one_run_at_once_take_turns(tmp_path: Path) -> None:
    danger, made = Danger(), list[int]()

    async def slow(x: int) -> int:
        made.append(x)
        await asyncio.sleep(0.02)
        return len(made)

    turn: list[Wanted] = [("c1", "slow", {"x": 1}), ("c2", "danger", {"x": 2})]
    wanted = Scripted(turn)
    async with beside(tmp_path, slow, danger.tool) as bridge:
        asked = await wanted(ModelRequest(HELLO, await bridge.tools_for("openai"), "", 1))
        history = [*HELLO, asked["choices"][0]["message"]]
        both = await asyncio.gather(*(bridge.run(Scripted(), history, run="r") for _ in range(3)))
        assert ({outcome.status for outcome in both}, made) == ({"paused"}, [1])
        (pending,) = await bridge.pending_approvals()
        await bridge.approve(pending.request.id)
        both = await asyncio.gather(*(bridge.run(Scripted(), history, run="r") for _ in range(3)))
        assert await bridge.pending_approvals() == []
    assert [told(outcome) for outcome in both] == [["1", "did 2"]] * 3
    assert (made, danger.done) == ([1], [2])


async def test_one_principal_cannot_fill_the_store_with_calls_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpbridge.tools.human_in_the_loop.paused_calls.MOST_BYTES", 3000)
    async with beside(tmp_path, manual_tool("man")) as bridge:
        results = [await bridge.call_tool("man", {"x": "y" * 1000}) for _ in range(3)]
        assert [result.is_error for result in results] == [False, False, True]
        assert "take 3000 B" in results[2].text
        assert (await bridge.call_tool("man", {"x": "y" * 1000}, user="another")).paused is not None


async def test_functions_of_the_program_see_every_call_made_or_not(tmp_path: Path) -> None:
    seen: list[Any] = []
    turn: list[Wanted] = [("c1", "nope", {}), ("c2", "h__say", {}), ("c3", "h__say", "{")]
    async with beside(tmp_path) as bridge:
        running = bridge.run(
            Scripted(turn), HELLO, on_call=lambda call: seen.append(call.id), on_result=lambda _: seen.append("result")
        )
        events = [event.name async for event in running]
    assert sorted(seen) == ["c1", "c2", "c3", "result", "result", "result"]
    assert (events.count("tool.call"), events.count("tool.result")) == (3, 3)


async def test_people_are_shown_what_will_be_sent_and_hooks_change_it_once(tmp_path: Path) -> None:
    @before
    def more(call: HookCall) -> dict[str, Any]:
        return {**call.arguments, "x": call.arguments["x"] + 1}

    def on_tool_called(x: int) -> str | None:
        return None

    def on_response_received(response: str, call: PausedCall) -> str:
        return f"{response} of {call.arguments['x']}"

    danger = Danger()
    both = [danger.tool, human_tool(on_tool_called, on_response_received, name="ask", requires_approval=True)]
    settings = {"store": {"path": str(tmp_path / "s.db")}}
    async with Bridge.open(settings, tools=both, hooks=[more], remember=False) as bridge:
        paused = await bridge.run(Scripted([("c1", "danger", {"x": 1}), ("c2", "ask", {"x": 1})]), HELLO)
        assert [dict(call.arguments) for call in paused.paused] == [{"x": 2}, {"x": 2}]
        for call in paused.paused:
            await bridge.approve(call.id)
        paused = await gone_on(bridge, paused)
        (call,) = paused.paused
        await bridge.resume(call.id, "yes")
        assert told(await gone_on(bridge, paused)) == ["did 2", "yes of 2"]
    assert danger.done == [2]


async def test_what_cannot_be_kept_or_read_of_a_run_is_none_of_its_business(tmp_path: Path) -> None:
    async with beside(tmp_path) as bridge:
        finished = Finished(bridge.store, run="r", user="")
        call: ToolCall[Any, Any] = ToolCall("x", {"n": float("inf"), "o": object()}, "c\ud800")
        one, two = finished.handles([call, call])
        assert one != two
        await finished.keep(one, CallResult([], raw={"o": object()}))
        assert await finished.find(one, call) is None
        await bridge.store.put("finished", b"[" * 5000, principal="", expires_in=60, handle=two)
        assert await finished.find(two, call) is None


# -- what functions of the program raise


def boom(_: object) -> None:
    raise ZeroDivisionError("a fault of the program")


PROGRESS = {"progress": [{"progress": 1, "message": "one"}, {"progress": 2, "message": "two"}]}


async def test_progress_that_cannot_be_heard_costs_no_result(tmp_path: Path) -> None:
    ended: list[str] = []
    heard: list[Any] = []

    async def steps() -> AsyncGenerator[dict[str, int]]:
        yield {"step": 1}
        yield {"step": 2}
        ended.append("whole")

    def hear(params: Mapping[str, Any]) -> None:
        heard.append(params)
        raise ZeroDivisionError("a fault of the program")

    async with beside(tmp_path, steps) as bridge:
        for name, arguments in (("h/say", PROGRESS), ("steps", {})):
            with pytest.raises(CallbackFailed, match="a fault of the program") as failed:
                await bridge.call_tool(name, arguments, on_progress=hear)
            assert isinstance(failed.value.__cause__, ZeroDivisionError)
            (result,) = failed.value.results
            assert not result.is_error
        assert (await bridge.call_tool("h/say", {})).text == "made 2"
    assert (ended, len(heard)) == (["whole"], 4)


async def test_events_that_cannot_be_heard_cost_no_call(tmp_path: Path) -> None:
    calls = [ToolCall[Any, Any]("h/say", PROGRESS), ToolCall[Any, Any]("h/say", {})]

    def only(kind: type) -> Callable[[RunEvent], None]:
        return lambda event: boom(event) if isinstance(event, kind) else None

    async with beside(tmp_path) as bridge:
        for kind in (CallProgress, CallReturned):
            with pytest.raises(CallbackFailed) as failed:
                await bridge.run_tool_calls(calls, on_event=only(kind))
            assert [result.is_error for result in failed.value.results] == [False, False]


async def test_a_run_that_a_hook_ends_says_what_its_calls_came_to(tmp_path: Path) -> None:
    async with beside(tmp_path) as bridge:
        with pytest.raises(RunFailed) as failed:
            await bridge.run(Scripted([("c", "h__say", {})]), HELLO, on_result=boom)
        assert texts(failed.value.outcome.results) == ["made 1"]
        done = await gone_on(bridge, failed.value.outcome)
    assert told(done) == ["made 1"]


async def test_a_resume_that_is_cancelled_at_once_leaves_the_call_for_the_next(tmp_path: Path) -> None:
    async with beside(tmp_path, asking()) as bridge:
        for steps in range(12):
            paused = await bridge.run(Scripted([("c", "ask", {"q": "?"})]), HELLO)
            answering = asyncio.ensure_future(bridge.resume(paused.paused[0].id, "first"))
            for _ in range(steps):
                await asyncio.sleep(0)
            answering.cancel()
            await asyncio.wait([answering])
            if await bridge.paused_calls():
                assert (await bridge.resume(paused.paused[0].id, "second")).text == "A:second"


# -- the rest of what a model was shown a preview of


LARGE = {"result": {"structuredContent": {"rows": [{"n": n, "text": f"row {n} " * 5} for n in range(3000)]}}}


@pytest.mark.parametrize("tools", [["h/say"], "say"], ids=["named", "query"])
async def test_a_model_that_is_shown_a_preview_may_recall_the_rest(tools: Any, tmp_path: Path) -> None:
    model = Scripted([("c1", "h__say", LARGE)], [("c2", "recall", {})], [("c3", "h__say", {})])
    async with beside(tmp_path) as bridge:
        outcome = await bridge.run(model, HELLO, tools=tools)
    assert outcome.results[0].handle
    assert [result.is_error for result in outcome.results] == [False, False, False]
    assert outcome.results[0].handle in outcome.results[1].text
    assert ("recall" in model.offered[0], "recall" in model.offered[1]) == (False, True)


async def test_recall_may_be_called_in_every_run_but_nothing_else_that_is_not_offered(tmp_path: Path) -> None:
    turn: list[Wanted] = [("c1", "recall", {}), ("c2", "ask", {"q": "?"}), ("c3", "h__say", {})]
    for strategy in ("auto", "off"):
        async with beside(tmp_path, asking(), results={"strategy": strategy} if strategy == "off" else {}) as bridge:
            outcome = await bridge.run(Scripted(turn), HELLO, tools=["h/say"])
        assert [result.is_error for result in outcome.results] == [strategy == "off", True, False]
        assert "Unknown tool: ask" in outcome.results[1].text
