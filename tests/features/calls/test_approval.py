"""A person agrees to calls: at the client, with `mcpbridge approve`, over HTTP; all with real processes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from mcpbridge.app.admin.control_client import ask_all
from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.approvals.pending import MayNotDecide
from mcpbridge.pipeline.approvals.request import ApprovalRequest
from support.answering_clients import ACCEPT, FORM, World, ask, in_rounds, list_of, world
from support.harness import Finished, Place, eventually, python_server
from support.programs import preloaded_bridge
from support.rpc import Message, Reply
from support.virtual_time import pass_time

FORM_ONLY: Message = {"elicitation": {"form": {}}}
ADMIN = "the-token-of-the-administrator"

ECHO = {"echo": {"permission": "require_approval"}}


def asking(**more: Any) -> Message:
    """A real server, of whose tool `echo` every call needs somebody to agree."""
    return python_server("plain", tool=ECHO, **more)


async def ids(place: Place, count: int = 1) -> list[str]:
    """The calls that wait at the bridges that run in this place."""
    directory = Path(place.environment()["XDG_RUNTIME_DIR"]) / "mcpbridge"

    async def look() -> list[str]:
        documents: list[Any] = await asyncio.to_thread(ask_all, directory, {"do": "approvals"})
        return list(dict.fromkeys(one["id"] for document in documents for one in document.get("approvals", [])))

    return await eventually(look, lambda found: len(found) >= count, 15)


def begins(client: Any, text: str, **meta: Any) -> "asyncio.Task[Reply]":
    return asyncio.ensure_future(client.call("up__echo", within=60, text=text, meta=meta or None))


# -- at the client


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_user_of_an_sdk_client_is_shown_a_form(place: Place, mode: str) -> None:
    """Both eras: the SDK's client on the standard streams of the bridge."""
    config = place.config({"up": asking()}, approval={"ask": ["client"]})
    words = iter(["once", "session", "no"])
    shown: list[str] = []

    async def elicit(_context: object, params: Any) -> types.ElicitResult:
        shown.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": next(words)})

    program, *arguments = (*preloaded_bridge.command(), "serve", "--config", str(config))
    bridge = StdioServerParameters(command=program, args=arguments, env=place.environment())
    with anyio.fail_after(60):
        async with Client(bridge, mode=mode, elicitation_callback=elicit) as client:
            await client.list_tools()
            results = [await client.call_tool("up__echo", {"text": text}) for text in ("a", "b", "b", "c")]
    assert [result.is_error for result in results] == [False, False, False, True]
    assert "was not approved" in results[-1].content[0].text
    assert len(shown) == 3
    assert shown[0].startswith(
        "[mcpbridge: approval] The bridge itself asks: may it call the tool 'echo' of the server 'up'"
    )
    assert '"text": "a"' in shown[0]
    assert "Why you are asked: " in shown[0]


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_the_form_is_one_that_the_clients_revision_knows(tmp_path: Path, version: str) -> None:
    """Titled choices came with 2025-11-25."""
    async with agreeing("stdio", tmp_path) as around:
        person = await around.person(version=version, **FORM_ONLY)
        reply = await person.calls("up__echo", lambda _: accept("once"), text="a")
        assert reply.text == "a"
        form = person.asked[0]["params"]["requestedSchema"]["properties"]["decision"]
        if version == "2025-11-25":
            assert [one["const"] for one in form["oneOf"]] == ["once", "session", "no"]
        else:
            assert form["enum"] == ["once", "session", "no"]
            assert len(form["enumNames"]) == 3


@pytest.mark.parametrize(
    ("front", "modern"),
    [("stdio", False), ("http", False), ("sse", False), ("websocket", False), ("stdio", True), ("http", True)],
)
async def test_what_is_no_yes_is_a_no_on_every_front(tmp_path: Path, front: str, modern: bool) -> None:
    async with agreeing(front, tmp_path) as around:
        person = await around.person(modern=modern, **FORM_ONLY)
        for answer in (
            {"action": "decline"},
            {"action": "cancel"},
            {"action": "accept"},
            {"action": "accept", "content": {}},
            {"action": "accept", "content": {"decision": "no"}},
            {"action": "accept", "content": {"decision": True}},
            {"action": "accept", "content": "once"},
            {},
        ):
            reply = await person.calls("up__echo", lambda _, answer=answer: answer, text="a")
            assert reply.failed, answer
            assert reply.result["_meta"]["mcpbridge/error"] == "ApprovalRefused"
        assert (await person.calls("up__echo", lambda _: accept("once"), text="a")).text == "a"


async def test_a_client_that_cannot_be_asked_is_no_way_around(tmp_path: Path) -> None:
    async with agreeing("stdio", tmp_path) as around:
        person = await around.person(roots={})
        reply = await person.client.call("up__echo", text="a")
        assert reply.result["_meta"]["mcpbridge/error"] == "ApprovalUnavailable"
        assert "approval.ask" in reply.text
        assert "journal" not in reply.text
        journal = json.loads((await person.client.call("up__journal")).text)
        assert not [one for one in journal if one["method"] == "tools/call" and one["params"]["name"] == "echo"]


async def test_a_client_that_answers_with_an_error_leaves_it_to_the_next(tmp_path: Path) -> None:
    async with agreeing("stdio", tmp_path, ask=["client", "pending"]) as around:
        person = await around.person(**FORM_ONLY)
        call = asyncio.ensure_future(
            person.calls("up__echo", lambda _: {"error": {"code": -32603, "message": "no window"}}, text="a")
        )

        async def look() -> list[Any]:
            return await around.bridge.approvals.pending()

        [pending] = await eventually(look, bool)
        await around.bridge.approvals.decide(pending.request.id, "once", "me")
        assert (await call).text == "a"


async def test_each_rule_says_where_people_are_asked(tmp_path: Path) -> None:
    """Whatever `approval.ask` says; where nothing else is said, the client has no form for it."""
    rules = [
        {"tools": "up/echo", "when": "args.text.startsWith('form')", "permission": "require_approval", "ask": "client"},
        {"tools": "up/echo", "permission": "require_approval", "ask": ["console", "client"]},
    ]
    sections: Any = {"approval": {"ask": ["pending"]}, "store": {"kind": "memory"}, "permissions": rules}
    async with world("stdio", tmp_path, {"up": ([], {})}, program="plain", **sections) as around:
        person = await around.person(**FORM_ONLY)
        reply = await person.calls("up__echo", lambda _: accept("once"), text="form a")
        assert (reply.text, len(person.asked)) == ("form a", 1)
        call = begins(person.client, "b")
        desk = around.bridge.approvals
        [pending] = await eventually(desk.pending, bool)
        assert pending.request.ask == ("console", "client")
        for by in ("cli:ann", "api:ann", "page:ann"):
            with pytest.raises(MayNotDecide, match="approved in the console only"):
                await desk.decide(pending.request.id, "once", by)
        await desk.decide(pending.request.id, "once", "console:ann")
        assert (await call).text == "b"
        assert len(person.asked) == 1, "the console can be asked, so the client is not"


# -- `mcpbridge approve`


async def steps_of_approvals(place: Place) -> list[str]:
    """What `mcpbridge log --events` tells of approvals; all that it tells is in the order of time."""
    events = [json.loads(line) for line in (await place.run("log", "--events", "--json")).out.splitlines()]
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    assert events[0]["event"] == "bridge.started"
    return [event["event"] for event in events if "." not in event["event"]]


async def test_a_call_waits_for_the_command(place: Place) -> None:
    async with place.bridge({"up": asking()}) as client:
        await client.initialize()
        call = begins(client, "secret plan", progressToken="p")
        [id_] = await ids(place)
        told = await client.notice("notifications/message")
        assert f"mcpbridge approve {id_}" in told["params"]["data"]
        progress = await client.notice("notifications/progress")
        assert progress["params"]["progressToken"] == "p"
        assert progress["params"]["progress"] < 0
        listed = await place.run("approvals")
        [_, line] = listed.out.splitlines()
        assert line.split()[:2] == [id_, "up/echo"]
        assert '{"text":"secret plan"}' in listed.out
        done = await place.run("approve", id_[:5])
        assert done.code == 0
        assert done.out.startswith("approved: up/echo\n")
        assert '"text": "secret plan"' in done.out
        assert (await call).text == "secret plan"
        again = await place.run("deny", id_)
        assert again.code == 6
        assert "already approved by cli:" in again.err
        assert id_ not in (await place.run("approvals")).out


async def test_a_no_by_command(place: Place) -> None:
    async with place.bridge({"up": asking()}) as client:
        await client.initialize()
        call = begins(client, "a")
        [id_] = await ids(place)
        unknown = await place.run("approve", "zzzzzzzz")
        assert unknown.code == 5
        assert "mcpbridge approvals" in unknown.err
        assert (await place.run("deny", id_.upper())).code == 0
        reply = await call
        assert reply.failed
        assert "was not approved" in reply.text
    assert await steps_of_approvals(place) == ["asked", "denied"]


async def test_a_yes_after_the_call_gave_up_lets_it_pass_once(place: Place) -> None:
    approval = {"timeout": 0.2, "ask": ["pending"]}
    async with place.bridge({"up": asking()}, approval=approval, store={"kind": "memory"}) as client:
        await client.initialize()
        refused = await client.call("up__echo", text="a", within=10)
        id_ = refused.result["_meta"]["mcpbridge/approval"]
        assert f"mcpbridge approve {id_}" in refused.text
        assert (await ids(place)) == [id_]
        assert "gave up" in (await place.run("approvals")).out
        done = await place.run("approve", id_)
        assert done.code == 0
        assert "passes when it is made again" in done.out
        assert (await client.call("up__echo", text="b", within=10)).failed
        assert (await client.call("up__echo", text="a", within=10)).text == "a"
        assert (await client.call("up__echo", text="a", within=10)).failed


async def test_a_late_yes_holds_after_the_bridge_has_ended(place: Place) -> None:
    """A client on standard input ends its bridge with it, and comes back with another."""
    settings: Any = {"approval": {"timeout": 0.2, "ask": ["pending"]}}
    async with place.bridge({"up": asking()}, **settings) as client:
        await client.initialize()
        refused = await client.call("up__echo", text="a", within=10)
    id_ = refused.result["_meta"]["mcpbridge/approval"]
    assert f"mcpbridge approve {id_}" in refused.text
    assert id_ in (await place.run("approvals")).out
    done = await place.run("approve", id_)
    assert done.code == 0, done.err
    async with place.bridge({"up": asking()}, **settings) as client:
        await client.initialize()
        assert (await client.call("up__echo", text="a", within=10)).text == "a"
        assert (await client.call("up__echo", text="a", within=10)).failed
    assert (await steps_of_approvals(place))[:4] == ["asked", "expired", "granted", "used"]


async def test_a_call_that_is_cancelled_does_not_wait_any_more(place: Place) -> None:
    async with place.bridge({"up": asking()}) as client:
        await client.initialize()
        call = begins(client, "a")
        [id_] = await ids(place)
        await client.tell("notifications/cancelled", requestId=client._last_id)
        await eventually(lambda: ids(place, 0), lambda found: found == [])
        assert (await place.run("approve", id_)).code == 5
        call.cancel()


async def test_a_bridge_that_stops_waits_for_nobody(place: Place) -> None:
    """And leaves nothing to answer in the store."""
    async with place.bridge({"up": asking()}) as client:
        await client.initialize()
        call = begins(client, "a")
        await ids(place)
    call.cancel()
    async with place.bridge({"up": asking()}) as client:
        await client.initialize()
        assert await ids(place, 0) == []


async def test_two_bridges_are_asked_and_a_short_id_must_be_of_one(place: Place, tmp_path: Path) -> None:
    """Both share the user's store, so both know of both calls."""
    async with place.bridge({"up": asking()}) as client, place.bridge({"up": asking()}) as other:
        calls = []
        for one in (client, other):
            await one.initialize()
            calls.append(begins(one, "a"))
        first, second = await ids(place, 2)
        ambiguous = await place.run("approve", "")
        assert ambiguous.code == 2
        assert first in ambiguous.err
        assert second in ambiguous.err
        done: list[Finished] = [await place.run("approve", first), await place.run("approve", second)]
        assert [one.code for one in done] == [0, 0]
        assert [(await call).text for call in calls] == ["a", "a"]


# -- over HTTP


async def test_a_call_waits_for_the_http_api(place: Place) -> None:
    place.env["MCPBRIDGE_ADMIN_TOKEN"] = ADMIN
    async with place.http_bridge({"up": asking()}) as client:
        await client.initialize()
        call = begins(client, "a")
        async with httpx2.AsyncClient(base_url=client.url.removesuffix("/mcp"), trust_env=False, timeout=60) as http:
            assert (await http.get("/api/approvals")).status_code == 403
            http.headers["authorization"] = f"Bearer {ADMIN}"

            async def look() -> list[Message]:
                return (await http.get("/api/approvals")).json()["approvals"]

            [listed] = await eventually(look, bool)
            response = await http.post(f"/api/approvals/{listed['id']}", json={"decision": "approve", "for": "session"})
            assert response.json()["by"] == "api:admin"
        assert (await call).text == "a"
        assert (await client.call("up__echo", text="a")).text == "a"


async def test_upstreams_do_not_get_the_token_of_the_administrator(place: Place) -> None:
    place.env["MCPBRIDGE_ADMIN_TOKEN"] = ADMIN
    async with place.http_bridge({"up": asking(inherit_env=True)}) as client:
        await client.initialize()
        await client.call("up__journal", within=10)
        environments = [
            Path(f"/proc/{pid}/environ").read_bytes() for pid in place.survivors() if pid != client.command.pid
        ]
        assert environments
        assert not any(ADMIN.encode() in environment for environment in environments)


async def test_a_token_of_the_administrator_that_can_be_guessed_is_refused(place: Place) -> None:
    place.env["MCPBRIDGE_ADMIN_TOKEN"] = "secret"
    finished = await place.run("serve", "--http", "127.0.0.1:0", "--config", str(place.config({})))
    assert finished.code == 2
    assert "MCPBRIDGE_ADMIN_TOKEN" in finished.err


# -- beside other rules


@pytest.mark.parametrize("modern", [False, True])
async def test_a_server_that_asks_back_needs_one_approval(tmp_path: Path, modern: bool) -> None:
    """The rounds of a call that was let through are the same call."""
    servers = {name: ([name], {"permission": "require_approval"}) for name in ("legacy", "modern")}
    approval = {"ask": ["client"]}
    async with world("http", tmp_path, servers, approval=approval, store={"kind": "memory"}) as around:
        person = await around.person(modern=modern, elicitation={"form": {}})

        def answer(question: Message) -> Message:
            return accept("once") if is_of_bridge(question) else ACCEPT

        reply = await person.calls("legacy__play", answer, steps=ask(FORM))
        assert list_of(reply) == [ACCEPT]
        reply = await person.calls("modern__rounds", answer, rounds=in_rounds(FORM))
        assert json.loads(reply.text)["answers"] == {"k1": ACCEPT}
        assert [is_of_bridge(question) for question in person.asked] == [True, False, True, False]


async def test_a_call_that_waits_holds_no_place_and_no_deadline_runs(tmp_path: Path) -> None:
    more = {"tool": ECHO, "max_concurrent": 1, "call_timeout": 10}
    async with world("stdio", tmp_path, {"up": ([], more)}, program="plain", store={"kind": "memory"}) as around:
        person = await around.person(roots={})
        call = begins(person.client, "a")
        desk = around.bridge.approvals
        [pending] = await eventually(desk.pending, bool)
        for _ in range(3):
            assert not (await person.client.call("up__journal")).failed
        pass_time(11)  # longer than the server's deadline: that is the point
        await desk.decide(pending.request.id, "once", "me")
        assert (await call).text == "a"


async def test_a_program_decides_by_a_function() -> None:
    asked: list[ApprovalRequest] = []

    def decide(request: ApprovalRequest) -> bool:
        asked.append(request)
        return request.arguments["text"] == "fine"

    settings = Settings.model_validate({"servers": {"up": asking()}, "store": {"kind": "memory"}})
    async with asyncio.timeout(20), Bridge(settings, approver=decide) as bridge:
        assert await bridge.settled(10)
        for text, is_error in (("fine", False), ("evil", True)):
            result = await bridge.request("tools/call", {"name": "up__echo", "arguments": {"text": text}})
            assert result.get("isError", False) == is_error
    assert [(request.tool, request.server) for request in asked] == [("up/echo", "up")] * 2


# -- parts


@asynccontextmanager
async def agreeing(front: str, folder: Path, ask: list[str] | None = None) -> AsyncIterator[World]:
    """A bridge in this process whose real server needs somebody to agree."""
    servers = {"up": ([], {"tool": ECHO})}
    async with world(
        front, folder, servers, program="plain", approval={"ask": ask or ["client"]}, store={"kind": "memory"}
    ) as around:
        yield around


def is_of_bridge(question: Message) -> bool:
    return question["params"]["message"].startswith("[mcpbridge: approval] The bridge itself asks")


def accept(decision: str) -> Message:
    return {"action": "accept", "content": {"decision": decision}}
