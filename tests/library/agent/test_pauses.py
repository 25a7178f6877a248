"""Runs that wait for somebody: they end, and are gone on with by another bridge that repeats nothing (issue 9)."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge import Bridge
from mcpbridge.core.tool_calls_and_results import CallResult
from mcpbridge.library.calls.run_events import ApprovalPending, CallReturned, CallStarted, RunFailed, RunOutcome
from mcpbridge.library.define_tools.decorator import tool
from mcpbridge.library.define_tools.human import human_tool, manual_tool
from support.harness import first_line
from support.models.agent_runs import APIS, HELLO, bridge_with, model_of, texts, world
from support.models.scripted_models import ScriptedTurn, scripted_models

ASKED = ScriptedTurn("I ask.", [("note", {"text": "a"}), ("ask", {"what": "?"}), ("note", {"text": "b"})])
TOLD = ScriptedTurn("Thank you.")


class Notes:
    """A tool whose effect must not be repeated, and who was told what."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.deleted: list[str] = []

    @property
    def tools(self) -> list[Any]:
        def note(text: str) -> str:
            """Note something."""
            self.made.append(text)
            return f"noted {text}"

        def on_tool_called(what: str) -> str | None:
            self.made.append(f"asked {what}")
            return None

        def on_response_received(response: str) -> str:
            return f"They said {response}."

        @tool(requires_approval=True)
        def delete(name: str) -> str:
            """Delete something."""
            self.deleted.append(name)
            return f"deleted {name}"

        ask = human_tool(on_tool_called, on_response_received, name="ask", description="Ask somebody.")
        byhand = manual_tool("byhand", description="Done by hand.", args=dict[str, Any], returns=str)
        return [note, ask, delete, byhand]


def saved(outcome: RunOutcome) -> list[dict[str, Any]]:
    """The history, as a program has it that wrote it to a file."""
    return json.loads(json.dumps(outcome.messages))


@pytest.mark.parametrize("api", APIS)
async def test_a_run_goes_on_in_another_bridge_and_repeats_nothing(api: str, tmp_path: Path) -> None:
    first, second = Notes(), Notes()
    async with world(api, [ASKED, TOLD], tmp_path, *first.tools) as (server, bridge, model):
        paused = await bridge.run(model, HELLO, run="r1")
        assert (paused.status, len(server.heard), paused.paused[0].kind) == ("paused", 1, "human")
        assert sorted(first.made) == ["a", "asked ?", "b"]
        async with bridge_with(tmp_path, *second.tools) as other:
            still = await other.run(model, saved(paused), run="r1")
            assert (still.status, len(server.heard)) == ("paused", 1)
            assert [call.id for call in still.paused] == [call.id for call in paused.paused]
            await other.resume(paused.paused[0].id, "yes")
            running = other.run(model, saved(still), run="r1")
            events = [event async for event in running]
            done = running.outcome
    assert server.refused == []
    assert (done.status, done.text, second.made, first.made[3:]) == ("done", "Thank you.", [], [])
    assert server.heard[1].results == ["noted a", "They said yes.", "noted b"]
    assert texts(done.results) == server.heard[1].results
    assert not [event for event in events if isinstance(event, CallStarted)]
    assert len([event for event in events if isinstance(event, CallReturned)]) == 3


async def test_what_a_program_answers_in_the_place_of_a_manual_tool_reaches_the_model(tmp_path: Path) -> None:
    turns = [ScriptedTurn("", [("byhand", {"x": 1})]), TOLD]
    async with world("openai", turns, tmp_path, *Notes().tools) as (server, bridge, model):
        paused = await bridge.run(model, HELLO)
        assert dict(paused.paused[0].arguments) == {"x": 1}
        await bridge.resume(paused.paused[0].id, "by hand")
        done = await bridge.run(model, paused.messages, run=paused.run)
    assert (done.status, server.heard[1].results) == ("done", ["by hand"])


DELETING = [ScriptedTurn("", [("delete", {"name": "x"}), ("note", {"text": "a"})]), TOLD]


@pytest.mark.parametrize("is_granted", [True, False], ids=["granted", "denied"])
@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_an_approval_pauses_the_run_until_somebody_decides(api: str, is_granted: bool, tmp_path: Path) -> None:
    notes = Notes()
    async with world(api, DELETING, tmp_path, *notes.tools) as (server, bridge, model):
        running = bridge.run(model, HELLO, run="r")
        events = [event async for event in running]
        paused = running.outcome
        (waiting,) = paused.paused
        assert (paused.status, waiting.kind, waiting.tool) == ("paused", "approval", "tools/delete")
        assert (waiting.run, dict(waiting.arguments)) == ("r", {"name": "x"})
        (pending,) = [event for event in events if isinstance(event, ApprovalPending)]
        assert (pending.id, pending.call_id, pending.arguments) == (waiting.id, waiting.call_id, {"name": "x"})
        async with bridge_with(tmp_path, *notes.tools) as other:
            still = await other.run(model, saved(paused), run="r")
            assert (still.status, still.paused[0].id, notes.deleted) == ("paused", waiting.id, [])
            assert [one.request.id for one in await other.pending_approvals()] == [waiting.id]
            await (other.approve if is_granted else other.deny)(waiting.id)
            done = await other.run(model, saved(still), run="r")
    assert server.refused == []
    assert (done.status, notes.made, notes.deleted) == ("done", ["a"], ["x"] if is_granted else [])
    assert [result.is_error for result in done.results] == [not is_granted, False]
    assert "not approved" in done.results[0].text or is_granted


async def test_a_denied_call_says_nothing_of_an_equal_one_later(tmp_path: Path) -> None:
    notes = Notes()
    async with world("openai", DELETING, tmp_path, *notes.tools) as (_server, bridge, model):
        one, two = await bridge.run(model, HELLO, run="one"), await bridge.run(model, HELLO, run="two")
        await bridge.deny(one.paused[0].id)
        await bridge.approve(two.paused[0].id)
        first, second = [await bridge.run(model, paused.messages, run=paused.run) for paused in (one, two)]
    assert [first.results[0].is_error, second.results[0].is_error, notes.deleted] == [True, False, ["x"]]


async def test_only_so_many_calls_wait_for_approval(tmp_path: Path) -> None:
    turns = [ScriptedTurn("", [("delete", {"name": "x"}), ("delete", {"name": "y"})]), TOLD]
    settings = {"calls": {"batch": 1}, "approval": {"max_pending": 1}}
    async with world("openai", turns, tmp_path, *Notes().tools, **settings) as (_server, bridge, model):
        outcome = await bridge.run(model, HELLO)
    assert [(result.is_error, result.paused is None) for result in outcome.results] == [(True, False), (True, True)]
    assert "wait for approval already" in outcome.results[1].text


async def test_a_run_may_wait_for_approvals_instead(tmp_path: Path) -> None:
    notes = Notes()
    async with world("openai", DELETING, tmp_path, *notes.tools) as (_server, bridge, model):
        running = bridge.run(model, HELLO, approvals="wait")
        async for event in running:
            if isinstance(event, ApprovalPending):
                await bridge.approve(event.id)
    assert (running.outcome.status, notes.deleted) == ("done", ["x"])


async def test_an_approver_of_the_program_is_asked_at_once_and_nothing_pauses(tmp_path: Path) -> None:
    notes = Notes()
    tables = {"store": {"path": str(tmp_path / "store.db")}}
    with anyio.fail_after(60):
        async with (
            scripted_models(DELETING) as server,
            Bridge.open(tables, tools=notes.tools, approver=lambda asked: True, remember=False) as bridge,
            model_of("openai", server) as model,
        ):
            outcome = await bridge.run(model, HELLO)
    assert (outcome.status, notes.deleted) == ("done", ["x"])


async def test_a_run_that_failed_in_the_middle_of_a_turn_repeats_no_call_that_finished(tmp_path: Path) -> None:
    notes, faults = Notes(), [True]

    def on_result(result: CallResult[Any]) -> None:
        if result.text == "noted b" and faults:
            raise ZeroDivisionError

    turns = [ScriptedTurn("", [("note", {"text": "a"}), ("note", {"text": "b"})]), TOLD]
    async with world("openai", turns, tmp_path, *notes.tools, calls={"batch": 1}) as (server, bridge, model):
        with pytest.raises(RunFailed) as failed:
            await bridge.run(model, HELLO, run="r", on_result=on_result)
        faults.clear()
        done = await bridge.run(model, failed.value.outcome.messages, run="r", on_result=on_result)
    assert (done.status, server.heard[1].results) == ("done", ["noted a", "noted b"])
    assert notes.made == ["a", "b"]


async def test_calls_without_ids_are_found_again(tmp_path: Path) -> None:
    """Gemini gives none: the place in the history says which is which."""

    class Gemini:
        format = "gemini"
        asked = 0

        async def __call__(self, request: Any) -> dict[str, Any]:
            self.asked += 1
            calls = [("note", {"text": "a"}), ("byhand", {}), ("note", {"text": "a"})]
            parts: list[dict[str, Any]] = [{"functionCall": {"name": name, "args": args}} for name, args in calls]
            return {
                "candidates": [{"content": {"role": "model", "parts": parts if self.asked == 1 else [{"text": "."}]}}]
            }

    notes, model = Notes(), Gemini()
    async with bridge_with(tmp_path, *notes.tools) as bridge:
        paused = await bridge.run(model, [{"role": "user", "parts": [{"text": "Go."}]}], run="r")
        await bridge.resume(paused.paused[0].id, "by hand")
        done = await bridge.run(model, saved(paused), run="r")
    assert (done.status, texts(done.results)) == ("done", ["noted a", "by hand", "noted a"])
    assert notes.made == ["a", "a"]


async def test_runs_are_told_apart_and_so_are_their_users(tmp_path: Path) -> None:
    """Nobody goes on with what another user's calls came to, even under the same names."""
    notes = Notes()
    async with world("openai", [ASKED, TOLD], tmp_path, *notes.tools) as (_server, bridge, model):
        mine = await bridge.run(model, HELLO, run="r", user="ada")
        again = await bridge.run(model, mine.messages, run="r", user="ada")
        assert (again.status, len(notes.made)) == ("paused", 3)
        for other in ({"run": "r", "user": "bob"}, {"run": "s", "user": "ada"}):
            outcome = await bridge.run(model, mine.messages, **other)
            assert outcome.paused[0].id != mine.paused[0].id
    assert len(notes.made) == 9


PROGRAM = """
import asyncio, json, sys
from openai import AsyncOpenAI
from mcpbridge import Bridge
from mcpbridge.library.agent.models.openai import OpenAIModel
from mcpbridge.library.calls.run_events import CallReturned, MessageWritten

address, store, saved = sys.argv[1:]


def note(text: str) -> str:
    return f"noted {text}"


async def hang() -> str:
    await asyncio.Event().wait()


async def main():
    history = [{"role": "user", "content": "Go on, then."}]
    tables = {"store": {"path": store}}
    async with Bridge.open(tables, tools=[note, hang], remember=False) as bridge:
        model = OpenAIModel(AsyncOpenAI(base_url=address, api_key="k"), model="m")
        async for event in bridge.run(model, history, run="r"):
            match event:
                case MessageWritten(messages):
                    with open(saved, "w") as file:
                        json.dump(history + list(messages), file)
                case CallReturned(result):
                    print(result.text, flush=True)


asyncio.run(main())
"""


async def test_what_finished_before_a_process_was_killed_is_not_repeated(tmp_path: Path) -> None:
    made: list[str] = []

    def note(text: str) -> str:
        made.append(text)
        return f"noted {text} again"

    def hang() -> str:
        return "done at last"

    program, saved_to = tmp_path / "program.py", tmp_path / "history.json"
    program.write_text(PROGRAM)
    turns = [ScriptedTurn("", [("note", {"text": "a"}), ("hang", {})]), TOLD]
    async with world("openai", turns, tmp_path, note, hang) as (server, bridge, model):
        arguments = [server.openai, str(tmp_path / "store.db"), str(saved_to)]
        own = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        async with await anyio.open_process([sys.executable, str(program), *arguments], env=own) as process:
            assert process.stdout is not None
            assert await first_line(process.stdout) == "noted a"
            process.kill()
            await process.wait()
        outcome = await bridge.run(model, json.loads(saved_to.read_text()), run="r")
    assert (outcome.status, texts(outcome.results), made) == ("done", ["noted a", "done at last"], [])
