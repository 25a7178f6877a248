"""Calls that wait for an answer from outside: by hand, and with a human in the loop."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Raw
from pydantic import BaseModel

from mcpbridge.base.errors import (
    AlreadyResumed,
    ArgumentsRefused,
    CallFailed,
    ConfigError,
    Overloaded,
    UnknownName,
    UpstreamUnavailable,
)
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.config.schema import Settings
from mcpbridge.core.context import BridgeContext, CallContext
from mcpbridge.core.model import Call
from mcpbridge.core.tool_calls_and_results import PAUSED, PausedCall, ToolCall, ToolResult
from mcpbridge.downstream.client import Client
from mcpbridge.engine.wiring.tools import ProgramTool
from mcpbridge.library.bridge import Bridge
from mcpbridge.library.calls.paused_calls import CLAIM, PausedCalls
from mcpbridge.pipeline.approvals.request import ApprovalRequest
from mcpbridge.pipeline.hooks.call import HookCall, after
from mcpbridge.protocol.body import Body
from mcpbridge.tools.backend import Backend
from mcpbridge.tools.human_in_the_loop import paused_calls as pausing
from mcpbridge.tools.human_in_the_loop.functions import Pause
from mcpbridge.tools.human_in_the_loop.human import HumanBackend
from mcpbridge.tools.human_in_the_loop.manual import ManualBackend
from mcpbridge.tools.human_in_the_loop.paused_calls import RESUME, PausedRecord, Resuming, go_on, resuming_of
from mcpbridge.tools.human_in_the_loop.settings import PausingSettings
from mcpbridge.tools.python.output import Result
from mcpbridge.tools.python.run_context.context import Context
from support.harness import eventually
from support.in_process_bridge import Ear

QUESTION = {"properties": {"question": {"type": "string"}}, "required": ["question"]}

READS = {"readOnlyHint": True}
"""Of tools whose calls may run side by side, and whose results may be kept."""


def given(backend: Backend, **settings: Any) -> ProgramTool:
    return ProgramTool(backend, PausingSettings(**settings))


def by_hand(output: dict[str, Any] | None = None, **settings: Any) -> dict[str, ProgramTool]:
    made = PausingSettings(**settings)
    return {"ask": ProgramTool(ManualBackend.of("ask", "Ask somebody.", QUESTION, output, settings=made), made)}


def looped(called: Callable[..., Any], received: Callable[..., Any], **settings: Any) -> dict[str, ProgramTool]:
    made = PausingSettings(**settings)
    return {"deploy": ProgramTool(HumanBackend.of(called, received, name="deploy", settings=made), made)}


@asynccontextmanager
async def running(
    folder: Path, tools: dict[str, ProgramTool], /, *, options: Any = None, **sections: Any
) -> AsyncGenerator[Bridge]:
    settings = Settings.model_validate({"store": {"path": str(folder / "s.db")}, **sections})
    with anyio.fail_after(60):
        async with Bridge(settings, tools=tools, **(options or {})) as bridge:
            yield bridge


async def paused(
    bridge: Bridge, name: str = "deploy", *, run: str = "", user: str = "", **arguments: Any
) -> PausedCall:
    result = await bridge.call_tool(f"tools/{name}", arguments, run=run, user=user)
    assert not result.is_error, result.text
    (call,) = [one for one in await bridge.paused_calls(user=user) if one.id == result.meta[PAUSED]["id"]]
    return call


def wait(service: str) -> str | None:
    """Deploy a service, once somebody agrees."""
    return None


def echoed(response: Any) -> Any:
    return response


# -- by hand


async def test_a_call_without_a_handler_waits_and_the_answer_is_its_result(tmp_path: Path) -> None:
    async with running(tmp_path, by_hand({"type": "integer"}, reason="Count them")) as bridge:
        call: ToolCall[Any, Any] = ToolCall("ask", {"question": "How many?"}, "call_1")
        result = await bridge.call(call, run="r1")
        assert (result.is_error, result.structured) == (False, None)
        assert "paused: Count them." in result.text
        (waiting,) = await bridge.paused_calls(run="r1")
        assert result.meta[PAUSED]["id"] == waiting.id
        assert waiting.id in result.text
        assert (waiting.tool, waiting.kind, waiting.arguments) == ("tools/ask", "manual", {"question": "How many?"})
        assert (waiting.call_id, waiting.run, waiting.reason) == ("call_1", "r1", "Count them")
        assert waiting.schema == {"type": "integer"}
        assert waiting.expires - waiting.created == pytest.approx(7 * 24 * 3600)
        assert await bridge.paused_calls(run="another") == []
        assert await bridge.answered("r1", "call_1") is None
        with pytest.raises(ArgumentsRefused, match="not of type"):
            await bridge.resume(waiting.id, "several")
        done = await bridge.resume(waiting.id, 42)
        assert (done.structured, done.text, done.is_error) == ({"result": 42}, "42", False)
        assert await bridge.paused_calls() == []
        kept = await bridge.answered("r1", "call_1")
        assert kept is not None
        assert kept.raw == done.raw
        with pytest.raises(AlreadyResumed, match="answered already"):
            await bridge.resume(waiting.id, 43)


async def test_the_definition_is_listed_without_output_schema_since_paused_misses_it(tmp_path: Path) -> None:
    async with running(tmp_path, by_hand({"type": "integer"}), results={"strategy": "off"}) as bridge:
        (tool,) = [tool for tool in await bridge.list_tools() if tool.server == "tools"]
        assert tool.definition == {
            "name": "ask",
            "description": "Ask somebody.",
            "inputSchema": {"type": "object", **QUESTION},
        }


async def test_the_result_by_hand_may_have_artifacts_or_be_an_error(tmp_path: Path) -> None:
    async with running(tmp_path, by_hand({"type": "integer"})) as bridge:
        waiting = await paused(bridge, "ask", question="?")
        done = await bridge.resume(waiting.id, ToolResult(1, artifacts=[{"page": 7}]))
        assert (done.structured, done.artifacts) == ({"result": 1}, ({"page": 7},))
        waiting = await paused(bridge, "ask", question="?")
        with pytest.raises(ArgumentsRefused, match="not of type"):
            await bridge.resume(waiting.id, ToolResult("one"))
        failed = await bridge.resume(waiting.id, ToolResult("nobody knows", is_error=True))
        assert (failed.is_error, failed.text) == (True, "nobody knows")


async def test_a_call_that_is_given_up_has_a_result_that_says_so(tmp_path: Path) -> None:
    async with running(tmp_path, by_hand()) as bridge:
        waiting = await paused(bridge, "ask", question="?", run="r")
        result = await bridge.cancel_paused(waiting.id, "too dear")
        assert (result.is_error, result.text) == (True, "The call of tools/ask was declined: too dear")
        with pytest.raises(AlreadyResumed, match="cancelled already"):
            await bridge.resume(waiting.id, 1)
        again = await bridge.answered("r", waiting.call_id)
        assert again is not None
        assert again.text == result.text


# -- with a human in the loop


class Decision(BaseModel):
    agreed: bool
    note: str = ""


class Outcome(BaseModel):
    state: str


async def test_a_human_tool_answers_at_once_or_waits_and_both_results_are_checked(tmp_path: Path) -> None:
    seen: list[Any] = []

    def deploy(service: str, context: CallContext) -> Outcome | dict[str, Any] | None:
        if service == "wrong":
            return {"stat": 1}
        return Outcome(state="was there") if service == "known" else None

    async def decided(response: Decision, context: CallContext, call: PausedCall) -> Outcome:
        seen.append((response, call.arguments, context.run, context.user, context.tenant, dict(context.metadata)))
        return Outcome(state=response.note if response.agreed else "refused")

    async with running(tmp_path, looped(deploy, decided)) as bridge:
        result = await bridge.call_tool("deploy", {"service": "known"})
        assert result.structured == {"state": "was there"}
        wrong = await bridge.call_tool("deploy", {"service": "wrong"})
        assert wrong.is_error
        assert "does not fit the output schema" in wrong.text
        about: dict[str, Any] = {"user": "ann", "tenant": "acme", "metadata": {"ticket": 7}}
        result = await bridge.call_tool("deploy", {"service": "new"}, run="r7", **about)
        id_ = result.meta[PAUSED]["id"]
        with pytest.raises(ArgumentsRefused, match="agreed"):
            await bridge.resume(id_, {"note": "no decision"}, user="ann")
        assert seen == []
        done = await bridge.resume(id_, Decision(agreed=True, note="done"), user="ann")
        assert done.structured == {"state": "done"}
        assert seen == [
            (Decision(agreed=True, note="done"), {"service": "new"}, "r7", "ann", "acme", {"ticket": 7}),
        ]


async def test_a_handler_that_fails_leaves_the_call_paused(tmp_path: Path) -> None:
    answers: list[Any] = []

    def received(response: Any) -> Outcome:
        answers.append(response)
        if response == "bad":
            raise ValueError("cannot be used")
        return response  # type: ignore[no-any-return]

    async with running(tmp_path, looped(wait, received)) as bridge:
        waiting = await paused(bridge, service="x")
        with pytest.raises(CallFailed, match=r"ValueError: cannot be used\. The call stays paused"):
            await bridge.resume(waiting.id, "bad")
        with pytest.raises(CallFailed, match="does not fit the output schema"):
            await bridge.resume(waiting.id, {"stat": 1})
        assert [one.id for one in await bridge.paused_calls()] == [waiting.id]
        assert (await bridge.resume(waiting.id, {"state": "up"})).structured == {"state": "up"}
        assert answers == ["bad", {"stat": 1}, {"state": "up"}]


async def test_a_pause_says_what_is_asked_of_this_call(tmp_path: Path) -> None:
    def ask(service: str) -> Pause:
        return Pause("May it?", schema={"enum": ["yes", "no"]}, expires_in=60)

    async with running(tmp_path, looped(ask, echoed, reason="Usually")) as bridge:
        waiting = await paused(bridge, service="x")
        assert (waiting.reason, waiting.schema) == ("May it?", {"enum": ["yes", "no"]})
        assert waiting.expires - waiting.created == pytest.approx(60)
        with pytest.raises(ArgumentsRefused, match="maybe"):
            await bridge.resume(waiting.id, "maybe")
        assert (await bridge.resume(waiting.id, "yes")).text == "yes"


async def test_a_pause_that_cannot_be_asked_is_the_tools_fault(tmp_path: Path) -> None:
    def ask(service: str) -> Pause:
        return Pause(schema={"type": "nothing"}) if service == "schema" else Pause(form={"type": "array"})

    async with running(tmp_path, looped(ask, echoed)) as bridge:
        for service, told in (("schema", "`schema` is none"), ("form", "the form is no object")):
            result = await bridge.call_tool("deploy", {"service": service})
            assert result.is_error
            assert told in result.text
        assert await bridge.paused_calls() == []


async def test_a_generator_tells_progress_and_waits_unless_it_gives_a_result(tmp_path: Path) -> None:
    async def called(service: str) -> AsyncGenerator[str | Result[str]]:
        yield f"looking at {service}"
        if service == "known":
            yield Result("was there")

    def received(response: str) -> Generator[str, None, str]:
        yield "deploying"
        return f"deployed: {response}"

    heard: list[str] = []

    def hear(progress: Mapping[str, Any]) -> None:
        heard.append(progress["message"])

    async with running(tmp_path, looped(called, received)) as bridge:
        assert (await bridge.call_tool("deploy", {"service": "known"}, on_progress=hear)).text == "was there"
        result = await bridge.call_tool("deploy", {"service": "new"}, on_progress=hear)
        assert (await bridge.resume(result.meta[PAUSED]["id"], "yes")).text == "deployed: yes"
    assert heard == ["looking at known", "looking at new"]


@pytest.mark.parametrize(
    ("called", "received", "settings", "told"),
    [
        (wait, lambda: 1, {}, "needs a parameter for the response"),
        (wait, lambda response, more: 1, {}, "not `more`"),
        (wait, 7, {}, "`on_response_received` is no function"),
        (7, echoed, {}, "`on_tool_called` is no function"),
        (wait, echoed, {"response_schema": {"type": "nothing"}}, "`response_schema` is none"),
        (wait, echoed, {"output_schema": {"type": "nothing"}}, "`output_schema` is none"),
    ],
    ids=["no-response", "more", "no-receiver", "no-tool", "response-schema", "output-schema"],
)
def test_what_cannot_be_a_tool_is_told(called: Any, received: Any, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        HumanBackend.of(called, received, name="t", settings=PausingSettings(**settings))


def test_a_manual_tool_with_a_wrong_schema_is_told() -> None:
    with pytest.raises(ConfigError, match="`output_schema` is none"):
        ManualBackend.of("t", output_schema={"type": "nothing"})


async def test_the_response_may_have_any_name_and_kind(tmp_path: Path) -> None:
    def positional(data: dict[str, Any], /, call: PausedCall) -> str:
        return f"{data} {call.kind}"

    def named(*, context: CallContext, data: int = 0, **_: Any) -> str:
        return f"{data} {context.run}"

    tools = looped(wait, positional) | {"other": given(HumanBackend.of(wait, named, name="other"))}
    async with running(tmp_path, tools) as bridge:
        one = await paused(bridge, service="x")
        assert (await bridge.resume(one.id, {"a": 1})).text == "{'a': 1} human"
        other = await paused(bridge, "other", service="x", run="r")
        assert (await bridge.resume(other.id, 5)).text == "5 r"


async def test_what_a_run_keeps_is_there_when_the_answer_comes(tmp_path: Path) -> None:
    def called(service: str, context: Context[dict[str, Any]]) -> None:
        context.update(service=service)

    def received(response: str, context: Context[dict[str, Any]]) -> str:
        return f"{context.value['service']}: {response}"

    async with running(tmp_path, looped(called, received)) as bridge:
        waiting = await paused(bridge, service="x", run="r")
        assert (await bridge.resume(waiting.id, "up")).text == "x: up"


# -- who answers


async def test_of_twenty_who_answer_one_wins(tmp_path: Path) -> None:
    runs = 0
    go_on = asyncio.Event()

    async def received(response: int) -> str:
        nonlocal runs
        runs += 1
        await go_on.wait()
        return f"answer {response}"

    def tools() -> dict[str, ProgramTool]:
        return looped(wait, received)

    async with running(tmp_path, tools()) as bridge, running(tmp_path, tools()) as other:
        waiting = await paused(bridge, service="x")
        attempts = [asyncio.create_task((bridge, other)[i % 2].resume(waiting.id, i)) for i in range(20)]
        await eventually(_later(lambda: sum(task.done() for task in attempts)), lambda done: done == 19)
        go_on.set()
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        assert runs == 1
        won = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        assert len(won) == 1
        assert all(isinstance(one, AlreadyResumed) for one in outcomes if isinstance(one, BaseException))
        assert won[0].text.startswith("answer ")


def _later(value: Callable[[], Any]) -> Callable[[], Any]:
    async def look() -> Any:
        return value()

    return look


async def test_who_gives_up_answering_leaves_the_call_to_others(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def received(response: str) -> str:
        if response == "slow":
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        return response

    async with running(tmp_path, looped(wait, received)) as bridge:
        waiting = await paused(bridge, service="x")
        slow = asyncio.create_task(bridge.resume(waiting.id, "slow"))
        await begun.wait()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert ended.is_set()
        assert (await bridge.resume(waiting.id, "quick")).text == "quick"


async def test_a_claim_whose_process_ended_lapses(tmp_path: Path) -> None:
    async with running(tmp_path, by_hand()) as bridge:
        waiting = await paused(bridge, "ask", question="?")
        await bridge.store.put(CLAIM, b"somebody's", principal="", expires_in=600, handle=waiting.id)
        with pytest.raises(AlreadyResumed, match="Somebody else"):
            await bridge.resume(waiting.id, 1)
        await bridge.store.put(CLAIM, b"somebody's", principal="", expires_in=0.05, handle=waiting.id)

        async def look() -> Any:
            return await bridge.store.get(CLAIM, waiting.id, principal="")

        await eventually(look, lambda found: found is None)
        assert (await bridge.resume(waiting.id, 1)).text == "1"


async def test_another_user_neither_sees_nor_answers_a_call(tmp_path: Path) -> None:
    async with running(tmp_path, by_hand()) as bridge:
        waiting = await paused(bridge, "ask", question="?", user="ann")
        for user in ("", "bob"):
            assert await bridge.paused_calls(user=user) == []
            with pytest.raises(UnknownName, match="Unknown paused call"):
                await bridge.resume(waiting.id, 1, user=user)
            with pytest.raises(UnknownName):
                await bridge.cancel_paused(waiting.id, user=user)
        assert (await bridge.resume(waiting.id, 1, user="ann")).text == "1"
        assert await bridge.answered("", waiting.call_id, user="bob") is None


async def test_no_client_can_say_that_its_call_goes_on_with_a_paused_one(tmp_path: Path) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def received(response: str) -> str:
        began.set()
        await go_on.wait()
        return response

    async with running(tmp_path, looped(wait, received, annotations=READS)) as bridge:
        waiting = await paused(bridge, service="x")
        answering = asyncio.create_task(bridge.resume(waiting.id, "mine"))
        await began.wait()
        for said in (waiting.id, "", "x" * 32, {"id": waiting.id, "answer": "theirs"}):
            params = {"name": "deploy", "arguments": {"service": "x"}, "_meta": {RESUME: said}}
            result = await bridge.request("tools/call", params)
            assert result["_meta"][PAUSED]["id"] != waiting.id
        go_on.set()
        assert (await answering).text == "mine"


def test_an_answer_is_for_its_call_alone() -> None:
    """A call that is made within one carries its `_meta`."""
    around = BridgeContext()
    record = PausedRecord("tools/ask", "manual", Raw(b"{}"), 0, 1, principal="ann")
    resuming = around.pauses.resuming.add(Resuming(record, "yes", "k"))

    def call(server: str = "tools", name: str = "ask", user: str = "ann", key: str = "k") -> Call:
        made = Call("tools/call", server, name, Body(), Body(b'{"%b":"%b"}' % (RESUME.encode(), key.encode())))
        made.tool = ToolRef(server, name, name, f"{server}/{name}", b"{}", b"{}", b"{}", {})
        made.caller, made.around = Client(principal=user), around
        return made

    assert resuming_of(call()) is resuming
    for other in (call("tool"), call(name="asks"), call(user="bob"), call(key="")):
        assert resuming_of(other) is None
        go_on(other)
        assert not other.continues


async def test_a_call_is_told_of_by_its_id_until_it_expires(tmp_path: Path) -> None:
    async with running(tmp_path, by_hand()) as bridge:
        calls = PausedCalls(bridge.store, bridge._context, bridge)
        waiting = await paused(bridge, "ask", question="?")
        assert await calls.get(waiting.id) == waiting
        assert await calls.result(waiting.id) is None
        done = await bridge.resume(waiting.id, 1)
        assert (await calls.get(waiting.id)).is_answered
        assert await calls.result(waiting.id) == done


async def test_a_call_that_nobody_answers_is_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path, by_hand(expires_in=0.3)) as bridge:
        result = await bridge.call_tool("ask", {"question": "?"})
        id_ = result.meta[PAUSED]["id"]
        await eventually(bridge.paused_calls, lambda found: not found)
        with pytest.raises(UnknownName, match="Unknown paused call"):
            await bridge.resume(id_, 1)


async def test_too_many_that_wait_are_refused_and_those_that_are_answered_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "MOST", 2)
    async with running(tmp_path, by_hand()) as bridge:
        first = await paused(bridge, "ask", question="1")
        await paused(bridge, "ask", question="2")
        refused = await bridge.call_tool("ask", {"question": "3"})
        assert refused.is_error
        assert "2 calls wait" in refused.text
        assert refused.meta["mcpbridge/error"] == Overloaded.__name__
        await bridge.resume(first.id, "1")
        await paused(bridge, "ask", question="3")


async def test_without_a_store_a_call_that_would_wait_says_so() -> None:
    backend = ManualBackend.of("ask")
    async with backend.running(lambda: None):
        with pytest.raises(UpstreamUnavailable, match="no store"):
            await backend.run(Call("tools/call", "tools", "ask", Body(b'{"name":"ask"}')))


# -- the way of the call


async def test_nobody_agrees_twice_and_it_is_counted_once(tmp_path: Path) -> None:
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.tool)
        return True

    tools = by_hand(permission="require_approval")
    async with running(tmp_path, tools, options={"approver": approve}, calls={"max_calls": 1}) as bridge:
        waiting = await paused(bridge, "ask", question="?")
        assert (await bridge.resume(waiting.id, "fine")).text == "fine"
    assert asked == ["tools/ask"]


async def test_a_call_that_may_not_be_made_any_more_stays_paused(tmp_path: Path) -> None:
    async with running(tmp_path, by_hand()) as bridge:
        waiting = await paused(bridge, "ask", question="?")
        await bridge.set_backend("ask", None)
        with pytest.raises(CallFailed, match="cannot be continued"):
            await bridge.resume(waiting.id, 1)
        await bridge.set_backend("ask", by_hand(permission="deny")["ask"])
        with pytest.raises(CallFailed, match="stays paused"):
            await bridge.resume(waiting.id, 1)
        await bridge.set_backend("ask", by_hand()["ask"])
        assert (await bridge.resume(waiting.id, 1)).text == "1"


async def test_who_must_agree_since_the_rules_changed_is_not_waited_for(tmp_path: Path) -> None:
    async with running(tmp_path, by_hand()) as bridge:
        waiting = await paused(bridge, "ask", question="?")
        await bridge.set_backend("ask", by_hand(permission="require_approval")["ask"])
        with pytest.raises(CallFailed, match="has to approve"):
            await bridge.resume(waiting.id, 1)
        (pending,) = await bridge.pending_approvals()
        await bridge.approve(pending.request.id)
        assert (await bridge.resume(waiting.id, 1)).text == "1"


async def test_a_tool_of_another_kind_takes_no_answer(tmp_path: Path) -> None:
    async with running(tmp_path, by_hand()) as bridge:
        waiting = await paused(bridge, "ask", question="?")

        def ask(question: str) -> str:
            return question

        await bridge.set_backend("ask", None)
        await bridge.add_tool(ask)
        with pytest.raises(CallFailed, match="came to nothing"):
            await bridge.resume(waiting.id, 1)
        assert len(await bridge.paused_calls()) == 1


async def test_what_is_paused_is_not_kept_by_the_cache_nor_shared(tmp_path: Path) -> None:
    runs: list[str] = []
    second = asyncio.Event()

    async def called(service: str) -> str | None:
        runs.append(service)
        if len(runs) == 2:
            second.set()
        with anyio.move_on_after(0.2):  # so that the second one comes meanwhile, and may share the first's run
            await second.wait()
        return "at once" if len(runs) >= 3 else None

    async with running(tmp_path, looped(called, echoed, cache=60, annotations=READS)) as bridge:
        one, other = await asyncio.gather(*(bridge.call_tool("deploy", {"service": "x"}) for _ in range(2)))
        assert one.meta[PAUSED]["id"] != other.meta[PAUSED]["id"]
        third = await bridge.call_tool("deploy", {"service": "x"})
        assert third.text == "at once"
        assert (await bridge.resume(one.meta[PAUSED]["id"], "mine")).text == "mine"  # not what the third one left
        assert (await bridge.call_tool("deploy", {"service": "x"})).text == "at once"
        assert len(runs) == 3


async def test_hooks_limits_and_shortening_apply_to_what_the_answer_brings(tmp_path: Path) -> None:
    told: list[str] = []

    @after
    def hook(call: HookCall) -> None:
        told.append("error" if call.result is None else call.tool)

    rows = [{"id": i, "name": f"row {i}", "text": "some words of it"} for i in range(400)]
    async with running(tmp_path, by_hand(), options={"hooks": [hook]}) as bridge:
        waiting = await paused(bridge, "ask", question="?", run="r")
        done = await bridge.resume(waiting.id, rows)
        assert done.handle
        assert len(done.text) < 5000
        kept = await bridge.answered("r", waiting.call_id)
        assert kept is not None
        assert kept.raw == done.raw
        assert told == ["tools/ask", "tools/ask"]
        assert "row 399" in (await bridge.recall(done.handle, path="[399]")).text


async def test_programs_hear_of_pauses_and_answers(tmp_path: Path) -> None:
    async with running(tmp_path, by_hand()) as bridge:
        with bridge.events.subscribe() as events:
            first = await paused(bridge, "ask", question="1", run="r")
            second = await paused(bridge, "ask", question="2")
            await bridge.resume(first.id, 1)
            await bridge.cancel_paused(second.id)
            events.close()
            heard = [event async for event in events if event.name.startswith("paused")]
        assert [event.name for event in heard] == ["paused", "paused", "paused.resumed", "paused.cancelled"]
        assert [event.data.id for event in heard] == [first.id, second.id, first.id, second.id]
        assert (heard[0].run, heard[0].tool) == ("r", "tools/ask")
        assert (heard[0].data.is_answered, heard[2].data.is_answered) == (False, True)


async def test_arguments_stand_in_the_store_alone(tmp_path: Path) -> None:
    store = {"path": str(tmp_path / "s.db"), "key": "a key of the test"}
    async with running(tmp_path, by_hand(), store=store) as bridge:
        result = await bridge.call_tool("ask", {"question": "is s3cret-word right?"})
        assert "s3cret-word" not in str(result.raw)
        (waiting,) = await bridge.paused_calls()
        assert waiting.arguments == {"question": "is s3cret-word right?"}
    written = b"".join(path.read_bytes() for path in tmp_path.glob("s.db*"))
    assert written
    assert b"s3cret-word" not in written


async def test_a_paused_call_whose_client_stopped_waiting_is_gone_on_with_all_the_same(tmp_path: Path) -> None:
    """Its paused result is kept for that client, and is no answer to the one who answers."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def called(service: str) -> None:
        begun.set()
        await go_on.wait()

    async with running(tmp_path, looped(called, echoed, late="keep")) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        call = asyncio.create_task(ear.ask("tools/call", {"name": "deploy", "arguments": {"service": "x"}}, b"5"))
        await begun.wait()
        ear.tell("notifications/cancelled", {"requestId": 5, "reason": "Request timed out"})
        go_on.set()
        await call
        (waiting,) = await bridge.paused_calls()
        assert (await bridge.resume(waiting.id, "yes")).text == "yes"
        ear.leave()
