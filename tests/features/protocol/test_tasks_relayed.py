"""Tasks between equal dialects: the client gets the task, under an id of the bridge, and follows it itself.

MCP 2025-11-25, Tasks, and the extension `io.modelcontextprotocol/tasks`. The principal of a request is set beside the
front here, as one with tokens does.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcpbridge.base.errors import BadRequest, UpstreamGone
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.elicitation.request_state import Sealer
from mcpbridge.downstream.revisions.request_meta import modern_client
from mcpbridge.downstream.tasks.tasks import MARGIN, TaskIds
from support.answering_clients import ACCEPT, FORM, ROOTS, SAMPLE, Person, World, world
from support.harness import eventually
from support.in_process_bridge import Ear, bridged, envelope, frame_of
from support.rpc import Message, Refused
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, Refusal, ScriptedTransport

TASKS = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
DECLARED: Message = {"elicitation": {}, "sampling": {}, "extensions": {TASKS: {}}}
DONE: Message = {"content": [{"type": "text", "text": "done"}]}
ENDED = ("completed", "failed", "cancelled")
FRONTS = pytest.mark.parametrize(("front", "transport"), [("stdio", "stdio"), ("http", "http")])

jobs = partial(world, program="tasks_upstream")


@asynccontextmanager
async def modern_at(
    folder: Path, front: str = "stdio", transport: str = "stdio"
) -> AsyncIterator[tuple[World, Person]]:
    """A modern client that knows tasks, and a modern server that makes them."""
    async with jobs(front, folder, {"up": ["modern", transport]}) as around:
        person = await around.person(modern=True, **DECLARED)
        yield around, person


@asynccontextmanager
async def legacy_at(
    folder: Path, front: str = "stdio", transport: str = "stdio"
) -> AsyncIterator[tuple[World, Person]]:
    """A client of 2025-11-25 and a server that runs its tools as tasks."""
    async with jobs(front, folder, {"up": ["legacy", transport]}) as around:
        yield around, await around.person(elicitation={}, sampling={})


async def made(person: Person, task: Message | None = None, tool: str = "up__job", **arguments: Any) -> Message:
    """The task that a call becomes."""
    params = person.params(tool, arguments)
    if not person.modern:
        params["task"] = task or {}
    result = (await person.client.request("tools/call", params)).result
    return result if person.modern else result["task"]


async def about(person: Person, method: str, task: Any, **params: Any) -> Message:
    """The answer to a request about a task."""
    own = person.params("", {})["_meta"]
    return (await person.client.request(method, {"taskId": task, "_meta": own, **params})).result


async def looks(person: Person, task: str, status: str | tuple[str, ...]) -> Message:
    """The task as soon as it has this status."""
    return await eventually(partial(about, person, "tasks/get", task), lambda found: found["status"] in status)


async def refused(person: Person, method: str, task: Any, **params: Any) -> Refused:
    with pytest.raises(Refused) as error:
        await about(person, method, task, **params)
    return error.value


# -- modern


@FRONTS
async def test_a_modern_task_is_followed_by_the_client_to_its_result(
    tmp_path: Path, front: str, transport: str
) -> None:
    """Flat as it came, with an id of the bridge, the bridge's `serverInfo` and the questions naming the server."""
    async with modern_at(tmp_path, front, transport) as (around, person):
        steps = [{"say": "begun"}, {"ask": {"a": FORM, "b": SAMPLE}}, {"say": "thinking"}]
        task = await made(person, steps=steps, ttl=None)
        assert (task["resultType"], task["status"], task["ttlMs"], task["pollIntervalMs"]) == (
            "task",
            "working",
            None,
            10,
        )
        id_ = task["taskId"]
        assert not id_.startswith("job-")
        found = await about(person, "tasks/get", id_)
        assert (found["taskId"], found["statusMessage"], found["resultType"]) == (id_, "begun", "complete")
        assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "mcpbridge"
        asking = await looks(person, id_, "input_required")
        assert asking["inputRequests"]["a"]["params"]["message"] == "[up] Who are you?"
        assert asking["inputRequests"]["b"]["method"] == "sampling/createMessage"
        acknowledged = await about(person, "tasks/update", id_, inputResponses={"a": ACCEPT})
        assert acknowledged.keys() == {"resultType", "_meta"}
        assert list((await about(person, "tasks/get", id_))["inputRequests"]) == ["b"]
        await about(person, "tasks/update", id_, inputResponses={"b": {"role": "x"}, "never-asked": {}})
        ended = await looks(person, id_, ENDED)
        assert json.loads(ended["result"]["content"][0]["text"]) == {"a": ACCEPT, "b": {"role": "x"}}
        assert (await about(person, "tasks/get", id_))["taskId"] == id_, "one id all its life"
        sent = {message["params"]["taskId"] for message in around.sent("up", "tasks/get")}
        assert len(sent) == 1
        assert sent.pop().startswith("job-")


async def test_a_modern_task_that_fails_keeps_its_error_and_a_cancelled_one_is_acknowledged(tmp_path: Path) -> None:
    async with modern_at(tmp_path) as (around, person):
        error = {"code": -32603, "message": "broken", "data": [None]}
        failed = await looks(person, (await made(person, steps=[{"error": error}]))["taskId"], ENDED)
        assert (failed["status"], failed["error"]) == ("failed", error)
        id_ = (await made(person, steps=[{"stay": True}]))["taskId"]
        for _ in range(2):  # cooperative, and the same for one that is over
            assert (await about(person, "tasks/cancel", id_)).keys() == {"resultType", "_meta"}
        assert (await about(person, "tasks/get", id_))["status"] == "cancelled"
        assert len(around.sent("up", "tasks/cancel")) == 2


async def test_a_question_before_a_modern_task_is_relayed_and_leaves_no_trace_in_it(tmp_path: Path) -> None:
    """The extension: multi round-trip requests are over when there is a task, which has no `requestState`."""
    async with modern_at(tmp_path) as (_, person):
        params = person.params("up__job", {"first": {"f": FORM}, "steps": []})
        asking = (await person.client.request("tools/call", params)).result
        assert asking["resultType"] == "input_required"
        again = {**params, "requestState": asking["requestState"], "inputResponses": {"f": ACCEPT}}
        task = (await person.client.request("tools/call", again)).result
        assert task["resultType"] == "task"
        assert "requestState" not in task
        ended = await looks(person, task["taskId"], ENDED)
        assert json.loads(ended["result"]["content"][0]["text"]) == {"f": ACCEPT}


async def test_who_did_not_declare_the_extension_is_told_so(tmp_path: Path) -> None:
    """−32021 with what to declare; `tasks/result` and `tasks/list` are no methods of this era at all."""
    async with modern_at(tmp_path) as (around, person):
        id_ = (await made(person, steps=[{"stay": True}]))["taskId"]
        for method in ("tasks/result", "tasks/list"):
            assert (await refused(person, method, id_)).code == -32601
        person.capabilities = {}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            error = await refused(person, method, id_, inputResponses={})
            assert error.code == -32021
            assert error.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        listen = {"notifications": {"taskIds": [id_]}, "_meta": person.params("", {})["_meta"]}
        with pytest.raises(Refused) as error:
            _ = (await person.client.request("subscriptions/listen", listen)).result
        assert error.value.code == -32021
        assert not around.sent("up", "tasks/get")
        reply = await person.calls("up__job", lambda _: None, steps=[{"result": DONE}])
        assert reply.text == "done", "for such a client the bridge follows"


async def test_a_task_that_asks_what_this_request_did_not_declare_says_what_to_declare(tmp_path: Path) -> None:
    async with modern_at(tmp_path) as (_, person):
        id_ = (await made(person, steps=[{"ask": {"a": FORM}}]))["taskId"]
        person.capabilities = {"extensions": {TASKS: {}}}
        error = await refused(person, "tasks/get", id_)
        assert (error.code, error.data) == (-32021, {"requiredCapabilities": {"elicitation": {}}})


async def test_roots_that_the_configuration_gives_are_answered_for_the_client(tmp_path: Path) -> None:
    settings = {"roots": ["/work"]}
    async with jobs("stdio", tmp_path, {"up": (["modern"], settings)}) as around:
        person = await around.person(modern=True, **DECLARED)
        id_ = (await made(person, steps=[{"ask": {"r": ROOTS, "a": FORM}}]))["taskId"]
        assert list((await about(person, "tasks/get", id_))["inputRequests"]) == ["a"]
        await about(person, "tasks/update", id_, inputResponses={"a": ACCEPT})
        ended = await looks(person, id_, ENDED)
        answers = json.loads(ended["result"]["content"][0]["text"])
        assert answers["r"]["roots"][0]["uri"] == "file:///work"


async def test_modern_clients_are_told_of_the_extension_where_a_server_has_it(tmp_path: Path) -> None:
    for era, has in (("modern", True), ("legacy", False)):
        async with jobs("stdio", tmp_path, {"up": [era]}) as around:
            person = await around.person(modern=True, **DECLARED)
            own = person.params("", {})["_meta"]
            declared = (await person.client.request("server/discover", {"_meta": own})).result["capabilities"]
            assert (TASKS in declared.get("extensions", {})) == has
            assert "tasks" not in declared, "that is the other dialect"


async def test_a_client_with_the_extension_still_gets_plain_results_of_legacy_servers(tmp_path: Path) -> None:
    """Whatever their tools need: the dialects are not converted into each other."""
    async with jobs("stdio", tmp_path, {"up": ["legacy"]}) as around:
        person = await around.person(modern=True, **DECLARED)
        assert (await person.calls("up__job", lambda _: None, steps=[{"result": DONE}])).text == "done"
        params = {**person.params("up__maybe", {}), "task": {"ttl": 5}}
        assert (await person.client.request("tools/call", params)).text == "at once", "no member of this era"


async def test_the_name_header_of_a_task_must_be_its_id(tmp_path: Path) -> None:
    """The extension, streamable HTTP: routing headers. Upstream the server's own id stands there (it checks)."""
    async with modern_at(tmp_path, "http", "http") as (_, person):
        id_ = (await made(person, steps=[{"stay": True}]))["taskId"]
        assert (await about(person, "tasks/get", id_))["taskId"] == id_
        params = {"taskId": id_, "_meta": person.params("", {})["_meta"]}
        message = {"jsonrpc": "2.0", "id": 99, "method": "tasks/get", "params": params}
        headers = {**person.client.headers(message), "mcp-name": "another"}
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            response = await http.post(person.client.url, json=message, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


@FRONTS
async def test_news_of_a_task_come_on_the_listen_stream_that_names_it(
    tmp_path: Path, front: str, transport: str
) -> None:
    """Acknowledged where the server does so; then whole tasks, with the ids that the client knows."""
    async with modern_at(tmp_path, front, "stdio") as (_, person):
        steps = [{"say": "one"}, {"ask": {"a": FORM}}]
        heard, other = [(await made(person, steps=steps))["taskId"] for _ in range(2)]
        own = person.params("", {})["_meta"]
        listen = {"notifications": {"taskIds": [heard, "no-such-task"]}, "_meta": own}
        person.front.start("subscriptions/listen", listen, id_="l")
        acknowledged = await person.client.notice("notifications/subscriptions/acknowledged")
        assert acknowledged["params"]["notifications"] == {"taskIds": [heard]}
        for id_ in (other, heard):
            await about(person, "tasks/get", id_)
        news = await person.client.notice("notifications/tasks")
        assert (news["params"]["taskId"], news["params"]["statusMessage"]) == (heard, "one")
        assert news["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "l"}
        await about(person, "tasks/get", heard)
        asking = await person.client.notice("notifications/tasks", lambda params: "inputRequests" in params)
        assert asking["params"]["inputRequests"]["a"]["params"]["message"] == "[up] Who are you?"
        told = {m["params"]["taskId"] for m in person.client.arrived if m["method"] == "notifications/tasks"}
        assert told == {heard}


# -- legacy


@FRONTS
async def test_a_legacy_task_is_followed_by_the_client_to_its_result(
    tmp_path: Path, front: str, transport: str
) -> None:
    """2025-11-25 core tasks: made by the client, looked at, asked on the stream of `tasks/result`, and its result."""
    async with legacy_at(tmp_path, front, transport) as (around, person):
        params = {
            **person.params("up__job", {"steps": [{"say": "on it"}, {"ask": {"a": FORM}}, {}]}),
            "task": {"ttl": 9},
        }
        result = (await person.client.request("tools/call", params)).result
        id_ = result["task"]["taskId"]
        assert (result["task"]["status"], result["task"]["pollInterval"]) == ("working", 10)
        assert result["_meta"] == {
            "io.modelcontextprotocol/model-immediate-response": "later",
            RELATED: {"taskId": id_},
        }
        assert not id_.startswith("job-")
        assert around.sent("up", "tools/call")[0]["params"]["task"] == {"ttl": 9}
        assert (await about(person, "tasks/get", id_))["statusMessage"] == "on it"
        assert (await about(person, "tasks/get", id_))["status"] == "input_required"
        waiting = person.front.start("tasks/result", {"taskId": id_})
        question = await person.questioned("elicitation/create")
        assert question["params"]["message"] == "[up] Who are you?"
        assert question["params"]["_meta"] == {RELATED: {"taskId": id_}}
        await person.answers(question, {**ACCEPT, "_meta": {RELATED: {"taskId": id_}}})
        assert (await looks(person, id_, ENDED))["taskId"] == id_
        ended = (await waiting).result
        got = json.loads(ended["content"][0]["text"])["a"]
        assert got["content"] == ACCEPT["content"]
        own_id = around.sent("up", "tasks/result")[0]["params"]["taskId"]
        assert got["_meta"] == {RELATED: {"taskId": own_id}}
        assert ended["_meta"] == {RELATED: {"taskId": id_}, "own": 1}
        assert own_id not in (await waiting).raw.decode().replace(json.dumps(got["_meta"]).replace('"', '\\"'), "")


async def test_tasks_of_a_session_are_listed_as_they_are_now_and_cancelled(tmp_path: Path) -> None:
    async with jobs("http", tmp_path, {"up": ["legacy", "stdio"]}) as around:
        person, other = await around.person(elicitation={}), await around.person(elicitation={})
        mine = [(await made(person, steps=[{"stay": True}]))["taskId"] for _ in range(2)]
        theirs = (await made(other, steps=[{"stay": True}]))["taskId"]
        gone = (await made(person, steps=[{"forget": True}]))["taskId"]
        listed = (await person.client.request("tasks/list", {})).result
        assert [task["taskId"] for task in listed["tasks"]] == mine
        assert "nextCursor" not in listed
        assert {task["status"] for task in listed["tasks"]} == {"working"}
        assert [task["taskId"] for task in (await other.client.request("tasks/list")).result["tasks"]] == [theirs]
        assert (await refused(person, "tasks/get", gone)).code == -32602
        cancelled = await about(person, "tasks/cancel", mine[0])
        assert (cancelled["taskId"], cancelled["status"]) == (mine[0], "cancelled")
        again = await refused(person, "tasks/cancel", mine[0])
        assert (again.code, again.message) == (-32602, f"{mine[0]} is cancelled"), "as the server put it, with this id"
        with pytest.raises(Refused) as error:
            _ = (await person.client.request("tasks/list", {"cursor": "x"})).result
        assert error.value.code == -32602


async def test_status_and_progress_of_a_task_reach_the_session_beside_its_requests(tmp_path: Path) -> None:
    async with legacy_at(tmp_path) as (_, person):
        params = person.params("up__job", {"steps": [{"progress": 3}, {"result": DONE}], "announces": True})
        call = {**params, "task": {}, "_meta": {"progressToken": "mine"}}
        id_ = (await person.client.request("tools/call", call)).result["task"]["taskId"]
        await about(person, "tasks/get", id_)
        # Below zero is what the bridge tells itself while the server starts.
        progress = await person.client.notice("notifications/progress", lambda params: params["progress"] >= 0)
        assert progress["params"] == {"progressToken": "mine", "progress": 3, "message": "real"}
        status = await person.client.notice("notifications/tasks/status")
        assert (status["params"]["taskId"], status["params"]["status"]) == (id_, "working")
        await about(person, "tasks/get", id_)
        await person.client.notice("notifications/tasks/status", lambda params: params["status"] == "completed")


@pytest.mark.parametrize("front", ["stdio", "http"])
async def test_a_question_that_comes_beside_all_requests_still_finds_its_session(tmp_path: Path, front: str) -> None:
    """It names its task; on HTTP the session's own stream carries it."""
    async with legacy_at(tmp_path, front) as (_, person), AsyncExitStack() as stack:
        if front == "http":
            await stack.enter_async_context(person.client.listening())
        id_ = (await made(person, steps=[{"ask": {"a": FORM}}], early=True))["taskId"]
        question = await person.questioned("elicitation/create")
        assert question["params"]["_meta"] == {RELATED: {"taskId": id_}}
        await person.answers(question, ACCEPT)
        ended = await looks(person, id_, ENDED)
        assert ended["status"] == "completed"
        assert (await about(person, "tasks/result", id_))["content"]


async def test_a_task_stays_with_the_server_instance_that_made_it(tmp_path: Path) -> None:
    """A server that keeps clients apart; the instance lives on while a task of its is followed."""
    settings = {"share": "session", "instance_idle": 0.2}
    async with jobs("http", tmp_path, {"up": (["legacy", "stdio"], settings)}) as around:
        people = [await around.person(elicitation={}) for _ in range(2)]
        ids = [(await made(person, steps=[{}, {}, {"result": DONE}]))["taskId"] for person in people]
        for _ in range(3):
            await asyncio.sleep(0.3)  # longer than an idle instance lives: that it does not end can only be waited for
            for person, id_ in zip(people, ids, strict=True):
                await about(person, "tasks/get", id_)
        for person, id_ in zip(people, ids, strict=True):
            assert (await about(person, "tasks/result", id_))["content"] == DONE["content"]
        instances = {where for where, message in around.journal("up") if message.get("method") == "tools/call"}
        assert len(instances) == 2


async def test_clients_of_2025_are_told_of_tasks_where_a_server_runs_them(tmp_path: Path) -> None:
    """And see which tools may; one that must is shown as one that may, since the bridge makes the task if need be."""
    servers = {"up": ["legacy"], "new": ["modern"]}
    async with jobs("http", tmp_path, servers) as around:
        newest = await around.person()
        capabilities = await newest.client.initialize()
        assert capabilities["capabilities"]["tasks"] == {
            "list": {},
            "cancel": {},
            "requests": {"tools": {"call": {}}},
        }
        tools = {tool["name"]: tool for tool in (await newest.client.request("tools/list", {})).result["tools"]}
        assert tools["up__job"]["execution"] == {"taskSupport": "optional"}
        assert tools["up__maybe"]["execution"] == {"taskSupport": "optional"}
        assert "execution" not in tools["up__echo"]
        assert "execution" not in tools["new__job"]
        older = await around.person()
        assert "tasks" not in (await older.client.initialize("2025-06-18"))["capabilities"]
        tools = (await older.client.request("tools/list", {})).result["tools"]
        assert not any("execution" in tool for tool in tools)


async def test_a_task_of_a_tool_that_runs_none_is_refused_unsent(tmp_path: Path) -> None:
    """2025-11-25, tool-level negotiation: −32601 where the capability is declared and the tool has no such support."""
    servers = {"up": ["legacy"], "new": ["modern"]}
    async with jobs("stdio", tmp_path, servers) as around:
        person = await around.person()
        for tool in ("up__echo", "new__job"):
            with pytest.raises(Refused) as error:
                await made(person, tool=tool)
            assert error.value.code == -32601
        assert not around.sent("up", "tools/call") + around.sent("new", "tools/call")


async def test_a_task_is_ignored_where_the_bridge_declared_none(tmp_path: Path) -> None:
    """2025-11-25, task support and handling: then the request is processed normally. And `tasks/*` are no methods."""
    async with jobs("stdio", tmp_path, {"up": ["legacy"]}) as around:
        person = Person((await around.person()).front)
        await person.opens("2025-06-18")
        params = {**person.params("up__maybe", {}), "task": {}}
        assert (await person.client.request("tools/call", params)).text == "at once"
        assert "task" not in around.sent("up", "tools/call")[0]["params"]
        for method in ("tasks/get", "tasks/result", "tasks/cancel", "tasks/list"):
            assert (await refused(person, method, "x")).code == -32601


# -- ids


OLD: Message = {
    **LEGACY_SERVER,
    "initialize": {
        **LEGACY_SERVER["initialize"],
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}},
    },
    "tools/list": {
        "tools": [
            {"name": "job", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
            {"name": "must", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
        ]
    },
    "tools/call": {"task": {"taskId": "t1", "status": "working", "ttl": None}},
    "tasks/get": {"taskId": "t1", "status": "working", "ttl": None},
    "tasks/result": DONE,
    "tasks/cancel": {"taskId": "t1", "status": "cancelled", "ttl": None},
}
NEW: Message = {
    **MODERN_SERVER,
    "tools/list": {"tools": [{"name": "job", "inputSchema": {"type": "object"}}]},
    "tools/call": {"resultType": "task", "taskId": "t1", "status": "working", "ttlMs": 60_000},
    "tasks/get": {"resultType": "complete", "taskId": "t1", "status": "working", "ttlMs": 60_000},
    "tasks/update": {"resultType": "complete"},
    "tasks/cancel": {"resultType": "complete"},
}
METHODS = {
    "legacy": ("tasks/get", "tasks/result", "tasks/cancel"),
    "modern": ("tasks/get", "tasks/update", "tasks/cancel"),
}


async def asked(ear: Ear, era: str, method: str, params: Message, principal: str = "") -> Message:
    """The answer to a request of this principal."""
    ear.client.principal = principal
    if era == "legacy":
        return await ear.ask(method, params)
    declared = {"io.modelcontextprotocol/clientCapabilities": DECLARED}
    frame = frame_of(method, {**params, "_meta": envelope(**declared)})
    answer = await ear.server.answer(modern_client(frame, principal), frame, ear.hear, cancel_as=ear.client)
    return json.loads(answer.data)


@asynccontextmanager
async def scripted(era: str) -> AsyncIterator[tuple[ScriptedTransport, Ear]]:
    transport = ScriptedTransport(OLD if era == "legacy" else NEW)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        if era == "legacy":
            await ear.initialize()
        yield transport, ear


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_id_serves_its_principal_and_nobody_else(era: str) -> None:
    """Forged, changed, another's, the server's own: one answer for all, and the server hears of none."""
    async with scripted(era) as (transport, ear):
        call: Message = {"name": "up__job", "arguments": {}, **({"task": {}} if era == "legacy" else {})}
        result = (await asked(ear, era, "tools/call", call, "ada"))["result"]
        id_ = (result["task"] if era == "legacy" else result)["taskId"]
        changed = id_[:-2] + ("A" if id_[-2] != "A" else "B") + id_[-1]
        for method in METHODS[era]:
            for principal, bad in (("bob", id_), ("", id_), ("ada", changed), ("ada", "t1"), ("ada", "ü"), ("ada", "")):
                answer = await asked(ear, era, method, {"taskId": bad, "inputResponses": {}}, principal)
                assert answer["error"]["code"] == -32602
                assert answer["error"]["message"].startswith("Unknown task")
            answer = await asked(ear, era, method, {"inputResponses": {}}, "ada")
            assert answer["error"]["code"] == -32602
            assert not transport.asked(method)
        for method in METHODS[era]:
            answer = await asked(ear, era, method, {"taskId": id_, "inputResponses": {}}, "ada")
            assert "result" in answer, answer
            assert transport.asked(method)[0]["params"]["taskId"] == "t1"


async def test_tasks_of_a_principal_are_listed_in_each_of_its_sessions_and_those_of_others_never() -> None:
    async with scripted("legacy") as (_, ear):
        await asked(ear, "legacy", "tools/call", {"name": "up__job", "arguments": {}, "task": {}}, "ada")
        for principal, number in (("ada", 1), ("bob", 0)):
            second = Ear(ear.server)
            await second.initialize()
            listed = await asked(second, "legacy", "tasks/list", {}, principal)
            assert len(listed["result"]["tasks"]) == number


async def test_an_id_outlives_its_session_and_is_still_good_after_a_restart_with_the_same_key() -> None:
    transport = ScriptedTransport(OLD)
    secret = {"state_key": "a key that replicas share"}
    call: Message = {"name": "up__job", "arguments": {}, "task": {}}
    async with bridged({"up": transport}, questions=secret) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        id_ = (await ear.ask("tools/call", call))["result"]["task"]["taskId"]
        ear.leave()
        assert not transport.asked("tasks/cancel"), "it may be asked for again"
    async with bridged({"up": transport}, questions=secret) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        assert (await ear.ask("tasks/get", {"taskId": id_}))["result"]["taskId"] == id_
        assert len((await ear.ask("tasks/list"))["result"]["tasks"]) == 1, "what can be looked at is listed"


async def test_what_the_server_says_of_an_expired_task_is_said_of_the_clients_id() -> None:
    async with scripted("modern") as (transport, ear):
        id_ = (await asked(ear, "modern", "tools/call", {"name": "up__job"}))["result"]["taskId"]
        transport.script["tasks/get"] = Refusal(-32602, "Task t1 has expired")
        answer = await asked(ear, "modern", "tasks/get", {"taskId": id_})
        assert answer["error"] == {"code": -32602, "message": f"Task {id_} has expired"}


async def test_one_session_cannot_make_tasks_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.downstream.tasks.session_tasks.MAX_TASKS", 2)
    async with scripted("legacy") as (transport, ear):
        call: Message = {"name": "up__job", "arguments": {}, "task": {}}
        numbers = iter("abc")
        transport.script["tools/call"] = lambda _: {"task": {"taskId": next(numbers), "status": "working", "ttl": None}}
        for _ in range(2):
            assert "task" in (await ear.ask("tools/call", call))["result"]
        assert (await ear.ask("tools/call", call))["result"]["isError"]
        assert len(transport.asked("tools/call")) == 2


def test_an_id_expires_with_its_task() -> None:
    now = [1000.0]
    ids = TaskIds(Sealer(clock=lambda: now[0]))
    client = Client(principal="ada")
    id_ = ids.seal(client, "up", "t1", 60)
    now[0] += 60 + MARGIN - 1
    assert ids.open(client, id_) == ("up", "t1")
    assert ids.open(client, id_) == ("up", "t1"), "as often as the client likes"
    now[0] += 2
    with pytest.raises(BadRequest, match="Unknown task"):
        ids.open(client, id_)


def test_an_id_is_of_its_dialect_and_of_the_servers_that_the_endpoint_shows() -> None:
    ids = TaskIds(Sealer())
    id_ = ids.seal(Client(), "up", "t1", None)
    assert ids.open(Client(view="up"), id_) == ("up", "t1")
    for other in (Client(modern=True), Client(view="another")):
        with pytest.raises(BadRequest, match="Unknown task"):
            ids.open(other, id_)


# -- servers that do not keep to the rules


@pytest.mark.parametrize(
    "task", [{"taskId": 7, "status": "working"}, {"taskId": "t"}, {"taskId": "t", "status": "odd"}]
)
async def test_what_is_no_task_fails_the_call_and_says_so(task: Message) -> None:
    async with scripted("modern") as (transport, ear):
        transport.script["tools/call"] = {"resultType": "task", **task}
        answer = await asked(ear, "modern", "tools/call", {"name": "up__job"})
        assert "task" in answer["result"]["content"][0]["text"]
        assert answer["result"]["isError"]


async def test_only_calls_of_tools_can_become_tasks() -> None:
    """The extension: a task in answer to anything else is no valid answer."""
    prompts: Message = {"prompts/list": {"prompts": [{"name": "p"}]}, "prompts/get": NEW["tools/call"]}
    transport = ScriptedTransport({**NEW, **prompts})
    transport.script["server/discover"] = {**NEW["server/discover"], "capabilities": {"prompts": {}, "tools": {}}}
    async with bridged({"up": transport}) as bridge:
        answer = await asked(Ear(bridge.server), "modern", "prompts/get", {"name": "up__p"})
        assert answer["error"]["code"] == -32603


async def test_a_legacy_answer_without_a_task_is_passed_on() -> None:
    async with scripted("legacy") as (transport, ear):
        transport.script["tools/call"] = DONE
        answer = await ear.ask("tools/call", {"name": "up__job", "arguments": {}, "task": {}})
        assert answer["result"] == DONE
        answer = await ear.ask("tools/call", {"name": "up__must", "arguments": {}})
        assert answer["result"] == DONE


async def test_a_look_that_fails_on_the_way_is_repeated_and_one_that_says_unknown_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reply that got lost tells nothing of the task, which the bridge follows for this client."""
    monkeypatch.setattr("mcpbridge.pipeline.task_polling.FIRST_RETRY", 0.0)
    transport = ScriptedTransport(NEW)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        lost, ended = UpstreamGone("up", "cut"), {**NEW["tasks/get"], "status": "completed", "result": DONE}
        for replies, words in (([lost, lost, ended], "done"), ([Refusal(-32602, "gone")], "it lost the task")):
            coming = iter(replies)
            transport.script["tasks/get"] = lambda _, coming=coming: next(coming)
            answer = await ear.ask_modern("tools/call", {"name": "up__job"})
            assert words in answer["result"]["content"][0]["text"]
            assert not list(coming)
