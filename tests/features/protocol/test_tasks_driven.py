"""Tasks of servers for clients that know none: the call lasts until the task has ended, over real fronts and servers.

A modern server makes a task of a call (the extension `io.modelcontextprotocol/tasks`), a tool of a legacy one runs as a
task only (MCP 2025-11-25, Tasks); all pairings of eras.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from mcpbridge.core.model import Call
from mcpbridge.pipeline import task_polling as task_driving
from mcpbridge.protocol.body import Body
from support.answering_clients import ACCEPT, FORM, ROOTS, SAMPLE, Person, World, world
from support.harness import Place, eventually, python_server
from support.programs import preloaded_bridge
from support.rpc import Message, Refused
from support.virtual_time import pass_time

DONE: Message = {"content": [{"type": "text", "text": "done"}]}
SAMPLED: Message = {"role": "assistant", "content": {"type": "text", "text": "ho"}, "model": "m"}
HOME: Message = {"roots": [{"uri": "file:///home/ada", "name": "home"}]}
CELLS = [
    pytest.param(front, client, server, transport, id=f"{client}-client-{front}-{server}-server-{transport}")
    for front in ("stdio", "http")
    for client in ("legacy", "modern")
    for server in ("legacy", "modern")
    for transport in ("stdio", "http")
]
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])

jobs = partial(world, program="tasks_upstream")


@asynccontextmanager
async def at_work(folder: Path, era: str, **settings: Any) -> AsyncIterator[tuple[World, Person]]:
    """A legacy client, and one server with tasks."""
    async with jobs("stdio", folder, {"up": ([era, "stdio"], settings)}) as around:
        yield around, await around.person()


def answer(question: Message) -> Message:
    """What a helpful client answers."""
    return {"elicitation/create": ACCEPT, "sampling/createMessage": SAMPLED, "roots/list": HOME}[question["method"]]


def nothing(question: Message) -> Message:
    raise AssertionError(f"asked {question}")


def progress_of(person: Person) -> list[Message]:
    """What it heard of how its calls go on. Below zero is what the bridge tells itself while a server starts."""
    params = [message["params"] for message in person.client.arrived if message["method"] == "notifications/progress"]
    return [told for told in params if told["progress"] >= 0]


# -- all pairings


@pytest.mark.parametrize(("front", "client", "server", "transport"), CELLS)
async def test_a_call_lasts_until_its_task_has_ended_and_what_the_task_asks_is_asked(
    tmp_path: Path, front: str, client: str, server: str, transport: str
) -> None:
    """Questions of a legacy task come on the stream of `tasks/result`, those of a modern one stand in the task."""
    steps = [{"say": "begun"}, {"ask": {"a": FORM, "b": SAMPLE}}, {"say": "more"}, {"ask": {"c": ROOTS}}]
    async with jobs(front, tmp_path, {"up": [server, transport]}) as around:
        person = await around.person(modern=client == "modern")
        reply = await person.calls("up__job", answer, steps=steps)
        got = json.loads(reply.text)
        for said in got.values():
            said.pop("_meta", None)
        assert got == {"a": ACCEPT, "b": SAMPLED, "c": HOME}
        assert sorted(question["method"] for question in person.asked) == [
            "elicitation/create",
            "roots/list",
            "sampling/createMessage",
        ]
        [shown] = [q["params"]["message"] for q in person.asked if q["method"] == "elicitation/create"]
        assert shown == "[up] Who are you?"
        assert all("_meta" not in question.get("params", {}) for question in person.asked)
        assert "io.modelcontextprotocol/related-task" not in reply.result.get("_meta", {})
        assert not around.sent("up", "tasks/cancel")


@pytest.mark.parametrize("client", ["legacy", "modern"])
@ERAS
async def test_the_result_is_the_tasks_own_whatever_the_client_can(tmp_path: Path, client: str, era: str) -> None:
    """A client that can be asked nothing needs no tasks either; vendors' keys and unknown members cross."""
    result = {**DONE, "structuredContent": {"n": 1}, "x-new": [None], "_meta": {"vendor/k": None}}
    async with jobs("http", tmp_path, {"up": [era, "http"]}) as around:
        person = await around.person(modern=client == "modern", tools={})
        person.capabilities = {}
        got = (await person.calls("up__job", nothing, steps=[{"say": "on it"}, {"result": result}])).result
        assert got["content"] == DONE["content"]
        assert (got["structuredContent"], got["x-new"]) == ({"n": 1}, [None])
        if era == "modern":
            assert got["_meta"]["vendor/k"] is None
        assert person.asked == []


# -- how it ends


@ERAS
async def test_a_tool_error_of_a_task_is_a_result(tmp_path: Path, era: str) -> None:
    """2025-11-25 calls such a task failed, the extension completed."""
    failed = {"content": [{"type": "text", "text": "no disk"}], "isError": True}
    async with at_work(tmp_path, era) as (_, person):
        reply = await person.calls("up__job", nothing, steps=[{"result": failed}])
        assert reply.failed
        assert reply.text == "no disk"


@ERAS
async def test_the_error_that_a_task_failed_with_is_the_answer(tmp_path: Path, era: str) -> None:
    error = {"code": -32602, "message": "no such city", "data": {"city": "?"}}
    async with at_work(tmp_path, era) as (_, person):
        with pytest.raises(Refused) as refused:
            _ = (await person.calls("up__job", nothing, steps=[{"error": error}])).result
        assert (refused.value.code, refused.value.message, refused.value.data) == (
            -32602,
            "no such city",
            {"city": "?"},
        )


@pytest.mark.parametrize(
    ("step", "words"), [({"cancelled": "out of paper"}, "out of paper"), ({"forget": True}, "no such task")]
)
@ERAS
async def test_a_task_that_ends_without_a_result_is_a_failed_call(
    tmp_path: Path, era: str, step: Message, words: str
) -> None:
    async with at_work(tmp_path, era) as (around, person):
        reply = await person.calls("up__job", nothing, steps=[step])
        assert reply.failed
        assert words in reply.text
        assert "'up'" in reply.text
        assert not around.sent("up", "tasks/cancel"), "it is over already"


@ERAS
async def test_a_call_that_is_cancelled_cancels_its_task(tmp_path: Path, era: str) -> None:
    async with at_work(tmp_path, era) as (around, person):
        person.begins("up__job", steps=[{"stay": True}])
        await around.gets("up", "tasks/get")
        await person.client.tell("notifications/cancelled", requestId=person.client._last_id)
        cancelled = await around.gets("up", "tasks/cancel")
        assert cancelled["params"]["taskId"] == around.sent("up", "tasks/get")[0]["params"]["taskId"]
        assert (await person.calls("up__echo", nothing, text="on")).text == "on"


@ERAS
async def test_time_that_is_up_cancels_the_task(tmp_path: Path, era: str) -> None:
    async with at_work(tmp_path, era, call_timeout=20, max_call_timeout=20) as (around, person):
        call = person.begins("up__job", steps=[{"stay": True}])
        await around.gets("up", "tasks/get")
        pass_time(20)
        reply = await call
        assert reply.failed
        assert "no answer within 20 s" in reply.text
        await around.gets("up", "tasks/cancel")


@ERAS
async def test_a_task_that_outlives_its_time_to_live_is_given_up(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_driving, "TTL_GRACE", 0.0)
    async with at_work(tmp_path, era) as (around, person):
        reply = await person.calls("up__job", nothing, steps=[{"stay": True}], ttl=50)
        assert reply.failed
        assert "0.05 s to live" in reply.text
        await around.gets("up", "tasks/cancel")


@ERAS
async def test_a_client_that_refuses_to_answer_ends_the_call(tmp_path: Path, era: str) -> None:
    """A legacy task is told by the error; a modern one knows no such answer, so it is cancelled."""
    async with at_work(tmp_path, era) as (around, person):
        no = {"error": {"code": -1, "message": "not now"}}
        reply = await person.calls("up__job", lambda _: no, steps=[{"ask": {"a": FORM}}])
        if era == "legacy":
            assert json.loads(reply.text) == {"a": no}
        else:
            assert reply.failed
            await around.gets("up", "tasks/cancel")


async def test_a_modern_client_that_never_comes_back_ends_the_task(tmp_path: Path) -> None:
    async with jobs("stdio", tmp_path, {"up": ["modern"]}, questions={"timeout": 0.2}) as around:
        person = await around.person(modern=True)
        reply = await person.client.request(
            "tools/call", person.params("up__job", {"steps": [{"ask": {"a": FORM}}, {"stay": True}]})
        )
        assert reply.result["resultType"] == "input_required"
        await around.gets("up", "tasks/cancel")


# -- meanwhile


@ERAS
async def test_a_client_that_wants_progress_hears_what_the_task_says(tmp_path: Path, era: str) -> None:
    steps = [{"say": "one"}, {}, {"say": "two"}, {"say": "three"}, {"result": DONE}]
    async with at_work(tmp_path, era) as (_, person):
        await person.calls("up__job", nothing, meta={"progressToken": "p"}, steps=steps)
        heard = progress_of(person)
        assert [(params["progressToken"], params["message"]) for params in heard] == [
            ("p", "one"),
            ("p", "two"),
            ("p", "three"),
        ]
        values = [params["progress"] for params in heard]
        assert values == sorted(set(values))


async def test_progress_of_the_server_itself_outlives_the_answer_that_made_the_task(tmp_path: Path) -> None:
    """2025-11-25: the token of the call is good for the whole life of its task."""
    steps = [{"progress": 1}, {"say": "words"}, {"progress": 2}, {"result": DONE}]
    async with at_work(tmp_path, "legacy") as (_, person):
        await person.calls("up__job", nothing, meta={"progressToken": 7}, steps=steps)
        heard = progress_of(person)
        assert [(params["progressToken"], params["progress"]) for params in heard] == [(7, 1), (7, 2)]
        assert {params["message"] for params in heard} == {"real"}


async def test_a_server_that_announces_news_is_looked_at_before_its_pace_says_so(tmp_path: Path) -> None:
    """With a minute between looks only the announcement, which another's look at the task causes, ends this in time."""
    async with at_work(tmp_path, "legacy") as (around, person):
        waiting = person.begins("up__job", steps=[{"result": DONE}], poll=60_000, announces=True)
        upstream = around.bridge.pool.upstreams["up"]

        async def followed() -> bool:
            return bool(upstream.tasks)

        await eventually(followed, bool)
        about = Body(json.dumps({"taskId": "job-1"}).encode())
        await upstream.request(Call("tasks/get", "up", "job-1", about))
        assert (await waiting).text == "done"


async def test_a_tool_that_may_run_as_a_task_does_not_unless_the_client_says_so(tmp_path: Path) -> None:
    async with at_work(tmp_path, "legacy") as (_, person):
        assert (await person.calls("up__maybe", nothing, steps=[])).text == "at once"


@pytest.mark.parametrize("odd", ["early", "nameless", "late_result"])
async def test_odd_servers_are_followed_too(tmp_path: Path, odd: str) -> None:
    """Questions that come at once, or name no task, and a result that cannot be waited for."""
    steps = [{"result": DONE}] if odd == "late_result" else [{"ask": {"a": FORM}}]
    async with at_work(tmp_path, "legacy") as (_, person):
        reply = await person.calls("up__job", answer, steps=steps, **{odd: True})
        assert reply.text == "done" if odd == "late_result" else "Ada" in reply.text


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_tasks_of_two_clients_are_never_mixed(tmp_path: Path, transport: str) -> None:
    async with jobs("http", tmp_path, {"up": ["legacy", transport]}) as around:
        people = [await around.person(), await around.person(), await around.person(modern=True)]

        async def converse(person: Person, name: str) -> None:
            for number in range(3):
                words = f"{name} {number}"
                question = {**FORM, "params": {**FORM["params"], "message": words}}
                said = {"action": "accept", "content": {"name": words}}
                steps = [{}, {"ask": {"a": question}}, {}]
                got = json.loads((await person.calls("up__job", lambda _, said=said: said, steps=steps)).text)
                assert got["a"]["content"] == {"name": words}

        await asyncio.gather(*(converse(person, name) for person, name in zip(people, "abc", strict=True)))
        for person, name in zip(people, "abc", strict=True):
            shown = [question["params"]["message"] for question in person.asked]
            assert shown == [f"[up] {name} {number}" for number in range(3)]


async def test_questions_before_the_task_and_in_it_are_all_put(tmp_path: Path) -> None:
    """A modern server may ask back first (multi round-trip requests) and then make a task."""
    for client in ("legacy", "modern"):
        async with jobs("stdio", tmp_path, {"up": ["modern"]}) as around:
            person = await around.person(modern=client == "modern")
            reply = await person.calls("up__job", answer, first={"f": FORM}, steps=[{"ask": {"a": SAMPLE}}])
            assert json.loads(reply.text) == {"f": ACCEPT, "a": SAMPLED}


async def test_the_official_client_calls_such_tools_like_any_other(place: Place) -> None:
    """The SDK as reference peer, over the bridge as a process; in the handshake era, and the modern one."""
    servers = {era: python_server("tasks_upstream", era) for era in ("legacy", "modern")}
    config = place.config(servers)

    async def elicit(_context: object, _params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    for mode in ("legacy", "2026-07-28"):
        program, *words = (*preloaded_bridge.command(), "serve", "--config", str(config))
        bridge = StdioServerParameters(command=program, args=words, env=place.environment())
        async with asyncio.timeout(60), Client(bridge, mode=mode, elicitation_callback=elicit) as client:
            await client.list_tools()
            for era in servers:
                result = await client.call_tool(f"{era}__job", {"steps": [{"ask": {"a": FORM}}]})
                assert json.loads(result.content[0].text)["a"]["content"] == {"name": "Ada"}


# -- what servers are told


async def test_the_extension_is_declared_to_modern_servers_alone(tmp_path: Path) -> None:
    name = "io.modelcontextprotocol/tasks"
    async with jobs("stdio", tmp_path, {"new": ["modern"], "old": ["legacy"]}) as around:
        person = await around.person()
        await person.calls("new__job", nothing, steps=[{"result": DONE}])
        assert around.sent("new", "tools/call")
        assert around.sent("new", "tasks/get")
        assert around.sent("old", "initialize")
        for message in around.sent("new", "tools/call") + around.sent("new", "tasks/get"):
            declared = message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
            assert name in declared["extensions"]
        for message in around.sent("old", "initialize"):
            assert name not in message["params"]["capabilities"].get("extensions", {})
            assert "tasks" not in message["params"]["capabilities"]


async def test_the_task_that_the_bridge_makes_is_no_business_of_the_client(tmp_path: Path) -> None:
    async with at_work(tmp_path, "legacy") as (around, person):
        await person.calls("up__job", nothing, steps=[{"result": DONE}])
        [call] = around.sent("up", "tools/call")
        assert call["params"]["task"] == {}
        await person.calls("up__echo", nothing, text="x")
        assert "task" not in around.sent("up", "tools/call")[1]["params"]
