"""Runs: a model over HTTP, asked by the official clients, works with tools of a bridge (issue 9, running calls)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mcpbridge.base.errors import CallRefused, ConfigError
from mcpbridge.core.tool_calls_and_results import CallResult, ToolCall, ToolResult
from mcpbridge.library.agent.models.model import ModelRequest
from mcpbridge.library.agent.models.openai import OpenAIModel
from mcpbridge.library.agent.options import Prepared
from mcpbridge.library.calls.run_events import (
    ArgumentsDelta,
    BusEvent,
    CallProgress,
    CallReturned,
    CallStarted,
    MessageWritten,
    RoundStarted,
    RunFailed,
    RunFinished,
    RunPaused,
    TextDelta,
    Turn,
    Usage,
)
from mcpbridge.library.define_tools.decorator import tool
from mcpbridge.library.define_tools.human import manual_tool
from mcpbridge.tools.python.output import Result
from support.models.agent_runs import APIS, HELLO, bridge_with, texts, world
from support.models.scripted_models import Heard, ScriptedTurn


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def boil(egg: str) -> str:
    """Boil an egg."""
    raise ValueError(f"the {egg} egg broke")


TEN_TURNS = [
    *(
        ScriptedTurn(
            f"Round {number}, I add twice.",
            [
                ("add", {"a": number, "b": 1}),
                ("add", lambda heard: {"a": sum(int(text) for text in heard.results)}),
            ],
        )
        for number in range(1, 10)
    ),
    ScriptedTurn("All added up."),
]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
async def test_ten_turns_with_parallel_calls(api: str, is_streamed: bool, tmp_path: Path) -> None:
    async with world(api, TEN_TURNS, tmp_path, add) as (server, bridge, model):
        running = bridge.run(model, HELLO, tools=["add"], strict=True)
        events = [event async for event in running] if is_streamed else []
        outcome = running.outcome if is_streamed else await running
    assert server.refused == []
    assert (outcome.status, outcome.text, len(outcome.turns)) == ("done", "All added up.", 10)
    numbers = [int(text) for text in texts(outcome.results)]
    assert numbers[:4] == [2, 1, 3, 4], "in the order of the calls, each round knowing the one before"
    assert len(numbers) == 18
    assert outcome.usage == Usage(110, 70)
    assert [turn.round for turn in outcome.turns] == list(range(1, 11))
    assert json.loads(json.dumps(outcome.messages)) == list(outcome.messages)
    assert outcome.messages[0] == HELLO[0]
    assert all(heard.body.get("stream", False) is is_streamed for heard in server.heard)
    if is_streamed:
        check_events(events, rounds=10)


def check_events(events: list[Any], *, rounds: int) -> None:
    """Deltas joined are the message, and everything comes in the order in which it must."""
    assert [event.round for event in events if isinstance(event, RoundStarted)] == list(range(1, rounds + 1))
    assert isinstance(events[-1], RunFinished)
    assert events[-1].name == "run.finished"
    text, arguments = "", dict[str, str]()
    for event in events:
        match event:
            case TextDelta(piece):
                text += piece
            case ArgumentsDelta(call_id, "add", piece):
                arguments[call_id] = arguments.get(call_id, "") + piece
            case MessageWritten(text=whole):
                assert text == whole
                text = ""
            case CallStarted(call):
                assert json.loads(arguments[call.id]) == call.arguments
            case CallReturned(result):
                assert result.call is not None
                assert result.call.id in arguments
            case _:
                pass
    names = [event.name for event in events if not isinstance(event, TextDelta | ArgumentsDelta | BusEvent)]
    assert names[:2] == ["round.started", "message"]
    assert sorted(names[2:6]) == ["tool.call", "tool.call", "tool.result", "tool.result"]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
async def test_a_client_that_is_not_async_works_in_a_thread(api: str, is_streamed: bool, tmp_path: Path) -> None:
    turns = [ScriptedTurn("One.", [("add", {"a": 1})]), ScriptedTurn("Two.")]
    async with world(api, turns, tmp_path, add, is_sync=True) as (_server, bridge, model):
        running = bridge.run(model, HELLO)
        events = [event async for event in running] if is_streamed else []
        outcome = running.outcome if is_streamed else await running
    assert (outcome.status, outcome.text, texts(outcome.results)) == ("done", "Two.", ["2"])
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "One.Two." * is_streamed


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
async def test_what_goes_wrong_with_a_call_is_told_to_the_model(api: str, is_streamed: bool, tmp_path: Path) -> None:
    calls: list[tuple[str, Any]] = [
        ("boil", {"egg": "brown"}),
        ("bail", {}),
        ("add", {"a": "x"}),
        ("add", {"a": 41}),
    ]
    if api != "anthropic" or is_streamed:  # whole, the API gives objects
        calls.append(("add", '{"a": 4'))
    turns = [ScriptedTurn("", calls), ScriptedTurn("Well.")]
    async with world(api, turns, tmp_path, add, boil) as (server, bridge, model):
        running = bridge.run(model, HELLO)
        _ = [event async for event in running] if is_streamed else await running
    results = running.outcome.results
    assert server.refused == []
    assert running.outcome.status == "done"
    assert [result.is_error for result in results] == [True, True, True, False, True][: len(calls)]
    assert "broke" in results[0].text
    assert "bail" in results[1].text
    assert "boil" in results[1].text, "the model hears what it may have meant"
    assert results[3].text == "42"
    assert len(calls) == 4 or "JSON" in results[4].text
    assert [bool(text) for text in server.heard[-1].results] == [True] * len(calls)


async def test_only_tools_that_the_model_is_offered_can_be_called(tmp_path: Path) -> None:
    """Whatever else the bridge has: a name that a model made up or was talked into leads nowhere."""
    made: list[str] = []

    def delete(name: str) -> str:
        made.append(name)
        return "gone"

    turns = [ScriptedTurn("", [("delete", {"name": "all"})]), ScriptedTurn("Hm.")]
    async with world("openai", turns, tmp_path, add, delete) as (server, bridge, model):
        outcome = await bridge.run(model, HELLO, tools=["add"])
    assert [server.heard[0].tools, made] == [["add"], []]
    assert outcome.results[0].is_error


async def test_rounds_end_and_can_be_gone_on_with(tmp_path: Path) -> None:
    turns = [ScriptedTurn("", [("add", {"a": number})]) for number in range(4)]
    async with world("anthropic", turns, tmp_path, add) as (_server, bridge, model):
        first = await bridge.run(model, HELLO, max_rounds=3)
        assert (first.status, len(first.turns), texts(first.results)) == ("max_rounds", 3, ["1", "2", "3"])
        second = await bridge.run(model, first.messages, max_rounds=3)
    assert (second.status, second.text, texts(second.results)) == ("done", "Over.", ["4"])
    with pytest.raises(ValueError, match="max_rounds"):
        bridge.run(model, HELLO, max_rounds=0)


async def test_the_program_decides_when_to_stop_what_is_offered_and_what_is_said(tmp_path: Path) -> None:
    turns = [ScriptedTurn("", [("add", {"a": number})]) for number in range(9)]
    seen: list[Turn] = []

    def offered(turn: Turn) -> list[Any]:
        return ["add", "boil"] if turn.round % 2 else ["add"]

    async def prepare(turn: Turn) -> Prepared | None:
        seen.append(turn)
        if turn.round == 2:
            return Prepared(messages=[*turn.messages, {"role": "user", "content": "Hurry."}], tools=["boil"])
        return None

    async def stop(turn: Turn) -> bool:
        return turn.round == 3

    async with world("openai", turns, tmp_path, add, boil) as (server, bridge, model):
        outcome = await bridge.run(model, HELLO, tools=offered, prepare=prepare, stop_when=stop, run="r1")
    assert server.refused == []
    assert (outcome.status, outcome.run, len(server.heard)) == ("stopped", "r1", 3)
    assert [heard.tools for heard in server.heard] == [["add"], ["add", "boil"], ["boil"]]
    assert server.heard[2].body["messages"][-1]["content"] == "Hurry."
    assert [turn.round for turn in seen] == [0, 1, 2]
    assert seen[1].run == "r1"
    assert texts(seen[2].results) == ["2"]
    assert seen[2].elapsed >= seen[1].elapsed


async def test_hooks_of_the_run_see_each_call_and_may_change_answer_or_refuse_it(tmp_path: Path) -> None:
    calls = [("add", {"a": number}) for number in range(4)]

    async def on_call(call: ToolCall[Any, Any]) -> ToolCall[Any, Any] | CallResult[Any] | None:
        match call.arguments["a"]:
            case 1:
                return ToolCall(call.name, {"a": 10})
            case 2:
                return CallResult([{"type": "text", "text": "seven"}])
            case 3:
                raise CallRefused("three is not to be added")
            case _:
                return None

    def on_result(result: CallResult[Any]) -> CallResult[Any] | None:
        if result.text == "1":
            return replace(result, content=[{"type": "text", "text": "one"}])
        return None

    async with world("openai", [ScriptedTurn("", calls)], tmp_path, add) as (server, bridge, model):
        outcome = await bridge.run(model, HELLO, on_call=on_call, on_result=on_result)
    assert texts(outcome.results) == ["one", "11", "seven", "three is not to be added"]
    assert server.heard[1].results[:3] == ["one", "11", "seven"]
    assert "three is not to be added" in server.heard[1].results[3]


async def test_a_hook_that_fails_ends_the_run_and_what_was_done_is_not_lost(tmp_path: Path) -> None:
    turns = [ScriptedTurn("", [("add", {"a": 1})]), ScriptedTurn("", [("add", {"a": 2})])]

    def on_result(result: CallResult[Any]) -> None:
        if result.text == "3":
            raise ZeroDivisionError("a fault of the program")

    async with world("openai", turns, tmp_path, add) as (_server, bridge, model):
        with pytest.raises(RunFailed, match="a fault of the program") as failed:
            await bridge.run(model, HELLO, on_result=on_result)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert failed.value.outcome.status == "failed"
    assert texts(failed.value.outcome.results) == ["2", "3"]


@pytest.mark.parametrize("api", APIS)
async def test_an_error_of_the_model_api_is_told_with_what_came_of_the_run_so_far(api: str, tmp_path: Path) -> None:
    turns = [ScriptedTurn("One.", [("add", {"a": 1})]), ScriptedTurn(status=503)]
    async with world(api, turns, tmp_path, add) as (server, bridge, model):
        with pytest.raises(RunFailed) as failed:
            await bridge.run(model, HELLO)
        assert getattr(failed.value.__cause__, "status_code", None) == 503
        outcome = failed.value.outcome
        server.turns = [turns[0], ScriptedTurn("Two.")]
        again = await bridge.run(model, outcome.messages, run=outcome.run)
    assert (outcome.status, outcome.text, texts(outcome.results)) == ("failed", "One.", ["2"])
    assert (again.status, again.text, again.results) == ("done", "Two.", ())


async def listen(running: Any, heard: list[str]) -> None:
    async for event in running:
        heard.append(event.name)  # noqa: PERF401 - what came before an error counts


async def test_who_iterates_hears_all_events_before_the_error(tmp_path: Path) -> None:
    turns = [ScriptedTurn("One.", [("add", {"a": 1})]), ScriptedTurn(status=500)]
    heard: list[str] = []
    async with world("openai", turns, tmp_path, add) as (_server, bridge, model):
        running = bridge.run(model, HELLO)
        with pytest.raises(RunFailed):
            await listen(running, heard)
        with pytest.raises(RunFailed):
            _ = running.outcome
    assert heard[-1] == "round.started"
    assert "run.finished" not in heard


async def test_progress_and_deliverables_are_heard_while_the_run_goes_on(tmp_path: Path) -> None:
    @tool
    async def count(to: int) -> Any:
        """Count."""
        for number in range(1, to + 1):
            yield {"progress": number, "total": to, "message": f"at {number}", "so_far": number}
        yield Result(ToolResult(str(to), artifacts=[{"counted": to}]))

    turns = [
        ScriptedTurn("", [("count", {"to": 2})]),
        ScriptedTurn("", [("final-answer", {"answer": "two", "confidence": 1})]),
        ScriptedTurn("Done."),
    ]
    enabled = {"enable": ["final-answer"]}
    async with world("anthropic", turns, tmp_path, count, builtin=enabled) as (_server, bridge, model):
        running = bridge.run(model, HELLO, stop_when=lambda turn: turn.deliverable is not None)
        events = [event async for event in running]
    progress = [event for event in events if isinstance(event, CallProgress)]
    assert [(event.message, event.progress, event.total) for event in progress] == [("at 1", 1, 2), ("at 2", 2, 2)]
    assert progress[0].event["so_far"] == 1
    outcome = running.outcome
    assert outcome.status == "stopped"
    assert outcome.deliverable is not None
    assert (outcome.deliverable["tool"], outcome.deliverable["answer"]) == ("final-answer", "two")
    assert list(outcome.results[0].artifacts) == [{"counted": 2}]
    assert "counted" not in json.dumps(outcome.messages)
    assert any(isinstance(event, BusEvent) and event.name == "deliverable" for event in events)


async def test_cancelling_a_run_cancels_its_calls(tmp_path: Path) -> None:
    begun, ended = {name: asyncio.Event() for name in "ab"}, list[str]()

    async def wait(name: str) -> str:
        begun[name].set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)
        return "never"

    turns = [ScriptedTurn("", [("wait", {"name": "a"}), ("wait", {"name": "b"})])]
    async with world("openai", turns, tmp_path, wait) as (_server, bridge, model):
        task = asyncio.ensure_future(awaited(bridge.run(model, HELLO)))
        for one in begun.values():
            await one.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sorted(ended) == ["a", "b"]
        async with bridge.run(model, HELLO) as running:  # as does who stops listening
            async for event in running:
                if isinstance(event, CallStarted):
                    break
        with pytest.raises(asyncio.CancelledError):
            _ = running.outcome


async def awaited(running: Any) -> Any:
    return await running


async def test_cancelling_a_run_lets_go_of_the_model(tmp_path: Path) -> None:
    async with world("openai", [ScriptedTurn("x", held=asyncio.Event())], tmp_path, add) as (server, bridge, model):
        task = asyncio.ensure_future(awaited(bridge.run(model, HELLO)))
        await server.until(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_run_is_usable_once(tmp_path: Path) -> None:
    async with world("openai", [ScriptedTurn("Hi.")], tmp_path, add) as (_server, bridge, model):
        running = bridge.run(model, HELLO)
        with pytest.raises(RuntimeError, match="not ended"):
            _ = running.outcome
        assert (await running).text == "Hi."
        with pytest.raises(RuntimeError, match="once"):
            await running


async def test_any_async_function_is_a_model(tmp_path: Path) -> None:
    """Gemini's own client, a local model, a test: what it gives back is read by its `format`."""

    class Gemini:
        format = "gemini"

        async def __call__(self, request: ModelRequest) -> dict[str, Any]:
            parts: list[dict[str, Any]] = [{"text": "Done."}]
            if request.round == 1:
                parts = [{"functionCall": {"name": "add", "args": {"a": number}}} for number in (1, 2)]
            answer = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
            return {"candidates": [answer], "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2}}

    async with bridge_with(tmp_path, add) as bridge:
        outcome = await bridge.run(Gemini(), [{"role": "user", "parts": [{"text": "Go."}]}])
    assert (outcome.status, outcome.text, texts(outcome.results)) == ("done", "Done.", ["2", "3"])
    assert outcome.usage == Usage(10, 4)


def test_a_model_without_its_package_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    request = ModelRequest(HELLO, [], "r", 1)
    with pytest.raises(ConfigError, match="openai"):
        asyncio.run(OpenAIModel(model="x")(request))


def test_a_client_is_made_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        asyncio.run(OpenAIModel(model="x")(ModelRequest(HELLO, [], "r", 1)))


async def test_a_paused_call_ends_the_run_and_other_calls_of_the_turn_are_made(tmp_path: Path) -> None:
    ask = manual_tool("ask", description="Ask somebody.", args=dict[str, Any], returns=str)
    turns = [ScriptedTurn("", [("ask", {"what": "?"}), ("add", {"a": 1})])]
    async with world("openai", turns, tmp_path, ask, add) as (server, bridge, model):
        running = bridge.run(model, HELLO, run="r")
        events = [event async for event in running]
    outcome = running.outcome
    assert (outcome.status, len(server.heard)) == ("paused", 1)
    assert [(call.kind, call.run, call.tool) for call in outcome.paused] == [("manual", "r", "tools/ask")]
    assert [bool(result.paused) for result in outcome.results] == [True, False]
    assert [event.name for event in events if isinstance(event, CallReturned | RunPaused)] == [
        "tool.result",
        "run.paused",
    ]
    assert outcome.messages[-1]["role"] == "assistant"


def test_the_scripted_models_see_what_was_said_last() -> None:
    heard = Heard("/v1/chat/completions", {}, {"messages": [*HELLO, {"role": "tool", "content": "3"}]})
    assert (heard.turn, heard.results) == (0, ["3"])
