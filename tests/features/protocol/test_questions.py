"""What servers ask of clients in the middle of a call, in all pairings of eras, over real fronts and processes."""

import asyncio
import contextlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from support.answering_clients import ACCEPT, ALL, FORM, PAGE, ROOTS, SAMPLE, Person, ask, list_of, of_ask, world
from support.harness import Place, eventually, python_server
from support.programs import preloaded_bridge
from support.rpc import Message
from support.virtual_time import pass_time

SAMPLED: Message = {"role": "assistant", "content": {"type": "text", "text": "ho"}, "model": "m"}
HOME: Message = {"roots": [{"uri": "file:///home/ada", "name": "home"}]}

CELLS = [
    pytest.param(front, client, transport, id=f"{client}-client-{front}-servers-{transport}")
    for front in ("stdio", "http")
    for client in ("legacy", "modern")
    for transport in ("stdio", "http")
]


def answer(question: Message) -> Message:
    """What a helpful client answers."""
    return {"elicitation/create": ACCEPT, "sampling/createMessage": SAMPLED, "roots/list": HOME}[question["method"]]


@pytest.mark.parametrize(("front", "client", "transport"), CELLS)
async def test_every_kind_of_question_is_put_and_answered(
    tmp_path: Path, front: str, client: str, transport: str
) -> None:
    """All four pairings of eras; form, URL, sampling with tools, roots; several at once."""
    tools = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}], "toolChoice": {"mode": "auto"}}
    with_tools = {**SAMPLE, "params": {**SAMPLE["params"], **tools, "includeContext": "thisServer"}}
    questions = [FORM, PAGE, SAMPLE, with_tools, ROOTS]
    async with world(front, tmp_path, {"legacy": ["legacy", transport], "modern": ["modern", transport]}) as around:
        person = await around.person(modern=client == "modern")
        for server in ("legacy", "modern"):
            person.asked.clear()
            got = await person.asks_on(server, server == "modern", *questions, answers=answer)
            assert got == [ACCEPT, ACCEPT, SAMPLED, SAMPLED, HOME]
            shown: dict[str, list[Message]] = {question["method"]: [] for question in questions}
            for question in person.asked:
                shown[question["method"]].append(question.get("params") or {})
            messages = sorted(shown["elicitation/create"], key=lambda params: params.get("mode", ""))
            written = [f"[{server}] Who are you?", f"[{server}] (opens example.com) Sign in"]
            assert [params["message"] for params in messages] == written
            assert messages[0]["requestedSchema"] == FORM["params"]["requestedSchema"]
            assert messages[1]["url"] == PAGE["params"]["url"]
            assert ("elicitationId" in messages[1]) == (client == "legacy")
            assert sorted(shown["sampling/createMessage"], key=len) == [SAMPLE["params"], with_tools["params"]]
            assert len(shown["roots/list"]) == 1


async def test_the_official_client_is_asked_as_its_own_callbacks_expect(place: Place) -> None:
    """The SDK as reference peer, over the bridge as a process; in the handshake era, and the modern one."""
    for mode in ("legacy", "2026-07-28"):
        config = place.config({"up": python_server("asking", "legacy")})
        shown: list[str] = []

        async def elicit(_context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
            shown.append(params.message)  # noqa: B023  # read before the next round
            return types.ElicitResult(action="accept", content={"name": "Ada"})

        async def sample(_context: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
            content = types.TextContent(type="text", text="ho")
            return types.CreateMessageResult(role="assistant", content=content, model="m")

        async def roots(_context: object) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada")])

        program, *words = (*preloaded_bridge.command(), "serve", "--config", str(config))
        bridge = StdioServerParameters(command=program, args=words, env=place.environment())
        asking = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}
        with anyio.fail_after(60):
            async with Client(bridge, mode=mode, **asking) as client:
                await client.list_tools()
                result = await client.call_tool("up__play", {"steps": ask(FORM, SAMPLE, ROOTS)})
        got = list(json.loads(result.content[0].text).values())
        assert ACCEPT in got
        assert "file:///home/ada" in json.dumps(got)
        assert '"ho"' in json.dumps(got)
        assert shown == ["[up] Who are you?"]


# -- who is asked


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_concurrent_questions_of_two_clients_are_never_mixed(tmp_path: Path, transport: str) -> None:
    """A legacy server's requests name no call, and still reach the one whose call it is."""
    async with world("http", tmp_path, {"up": ["legacy", transport]}) as around:
        people = [await around.person(), await around.person(), await around.person(modern=True)]

        async def converse(person: Person, name: str) -> None:
            for number in range(4):
                words = f"{name} {number}"
                question = {**FORM, "params": {**FORM["params"], "message": words}}
                reply = await person.calls("up__play", lambda _, words=words: reply_of(words), steps=ask(question))
                assert list_of(reply) == [reply_of(words)]

        def reply_of(words: str) -> Message:
            return {"action": "accept", "content": {"name": words}}

        await asyncio.gather(*(converse(person, name) for person, name in zip(people, "abc", strict=True)))
        for person, name in zip(people, "abc", strict=True):
            shown = [question["params"]["message"] for question in person.asked]
            assert shown == [f"[up] {name} {number}" for number in range(4)]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_client_that_thinks_long_holds_up_nobody(tmp_path: Path, transport: str) -> None:
    servers = {"up": (["legacy", transport], {"call_timeout": 20, "queue_timeout": 20})}
    async with world("http", tmp_path, servers) as around:
        slow, quick = await around.person(), await around.person()
        call = slow.begins("up__play", steps=ask(FORM))
        question = await slow.questioned("elicitation/create")
        for _ in range(3):
            assert await quick.asks_on("up", False, FORM, answers=answer) == [ACCEPT]
        pass_time(21)  # longer than the server may take for an answer of its own
        await slow.answers(question, ACCEPT)
        assert list_of(await call) == [ACCEPT]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("client", ["legacy", "modern"])
async def test_what_a_client_did_not_declare_is_never_put_to_it(tmp_path: Path, client: str, transport: str) -> None:
    """The issue: the upstream gets the right answer instead. What was declared up is what it was told."""
    async with world("http", tmp_path, {"up": ["legacy", transport]}) as around:
        person = await around.person(modern=client == "modern", elicitation={})
        forbidden = [PAGE, SAMPLE, ROOTS]
        got = await person.asks_on("up", False, FORM, *forbidden, answers=answer)
        assert got[0] == ACCEPT
        assert [outcome["error"]["code"] for outcome in got[1:]] == [-32601] * 3
        assert [question["method"] for question in person.asked] == ["elicitation/create"]
        declared = around.sent("up", "initialize")[-1]["params"]["capabilities"]
        assert declared["elicitation"] == {"form": {}}
        assert not {"sampling", "roots"} & declared.keys()


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_modern_server_that_asks_for_more_than_was_declared_fails_its_call(
    tmp_path: Path, transport: str
) -> None:
    async with world("http", tmp_path, {"up": ["modern", transport]}) as around:
        for modern in (False, True):
            person = await around.person(modern=modern, elicitation={})
            reply = await person.calls("up__rounds", answer, rounds=[{"inputRequests": {"k": SAMPLE}}])
            assert reply.failed
            assert "sampling" in reply.text
            assert not person.asked
        declared = around.sent("up", "tools/call")[-1]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert declared["elicitation"] == {"form": {}}
        assert "sampling" not in declared


async def test_a_client_that_declares_nothing_is_asked_nothing(tmp_path: Path) -> None:
    async with world("http", tmp_path, {"up": ["legacy"], "new": ["modern"]}) as around:
        for modern in (False, True):
            person = await around.person(modern=modern, experimental={})
            [got] = await person.asks_on("up", False, FORM, answers=answer)
            assert got["error"]["code"] == -32601
            assert (await person.calls("new__rounds", answer, rounds=[{"inputRequests": {"k": FORM}}])).failed
            assert not person.asked


async def test_what_older_revisions_do_not_have_is_not_put_to_their_clients(tmp_path: Path) -> None:
    """MCP, Key Changes: URLs and sampling with tools came with 2025-11-25, elicitation with 2025-06-18."""
    with_tools = {**SAMPLE, "params": {**SAMPLE["params"], "tools": []}}
    async with world("http", tmp_path, {"up": ["legacy"]}) as around:
        for version, able in {
            "2025-06-18": [True, False, True, False],
            "2025-03-26": [False, False, True, False],
        }.items():
            person = await around.person(version=version)
            got = await person.asks_on("up", False, FORM, PAGE, SAMPLE, with_tools, answers=answer)
            assert ["error" not in outcome for outcome in got] == able
            assert len(person.asked) == sum(able)


# -- roots


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_roots_of_the_configuration_are_answered_without_asking(tmp_path: Path, transport: str) -> None:
    known = {"roots": ["/srv/data", "file:///etc"]}
    servers = {"up": (["legacy", transport], known), "new": (["modern", transport], known)}
    async with world("http", tmp_path, servers) as around:
        for modern in (False, True):
            person = await around.person(modern=modern, elicitation={})
            for server in ("up", "new"):
                got = await person.asks_on(server, server == "new", ROOTS, FORM, answers=answer)
                assert got == [{"roots": [{"uri": "file:///srv/data"}, {"uri": "file:///etc"}]}, ACCEPT]
            assert [question["method"] for question in person.asked] == ["elicitation/create"] * 2


async def test_roots_are_asked_for_outside_of_calls_while_there_is_one_client_only(tmp_path: Path) -> None:
    """Nobody else's directories are told: with two clients the question belongs to nobody."""
    later = [{"answer": {"content": []}}, {"send": {"id": "r", **ROOTS}}, {"await": ["r"]}]
    async with world("http", tmp_path, {"up": ["legacy"]}) as around:
        first = await around.person()
        async with first.client.listening():
            await first.begins("up__play", steps=later)
            await first.answers(await first.questioned("roots/list"), HOME)
            assert (await around.gets("up"))["result"] == HOME
            second = await around.person()
            async with second.client.listening():
                await second.begins("up__play", steps=later)
                assert (await around.gets("up", times=2))["error"]["code"] == -32600
            assert len([m for m in first.client.arrived + second.client.arrived if m["method"] == "roots/list"]) == 1


@pytest.mark.parametrize("front", ["stdio", "http"])
async def test_a_change_of_roots_reaches_the_server(tmp_path: Path, front: str) -> None:
    async with world(front, tmp_path, {"up": ["legacy"]}) as around:
        person = await around.person()
        await person.calls("up__echo", answer, text="hi")
        await person.client.tell("notifications/roots/list_changed")
        await around.gets("up", "notifications/roots/list_changed")


# -- pages


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_only_the_client_that_opened_a_page_hears_that_it_is_done(tmp_path: Path, transport: str) -> None:
    done = {"send": {"method": "notifications/elicitation/complete", "params": {"elicitationId": "e-1"}}}
    async with world("http", tmp_path, {"up": ["legacy", transport]}) as around:
        asked, other = await around.person(), await around.person()
        async with asked.client.listening(), other.client.listening():
            reply = await asked.calls("up__play", answer, steps=ask(PAGE, then=[done]))
            assert list_of(reply) == [ACCEPT]
            told = await asked.client.notice("notifications/elicitation/complete")
            assert told["params"] == {"elicitationId": asked.asked[0]["params"]["elicitationId"]}
            await other.calls("up__echo", answer, text="later")
            assert "notifications/elicitation/complete" not in [message["method"] for message in other.client.arrived]


async def test_a_page_of_a_modern_server_gets_an_id_and_is_reported_done(tmp_path: Path) -> None:
    """While the same page is asked for, the person is not asked again."""
    page = {"method": PAGE["method"], "params": {k: v for k, v in PAGE["params"].items() if k != "elicitationId"}}
    waiting = {"inputRequests": {"k1": page}}
    async with world("stdio", tmp_path, {"up": ["modern"]}) as around:
        person = await around.person()
        reply = await person.calls("up__rounds", answer, rounds=[waiting, waiting, waiting])
        assert json.loads(reply.text) == {"answers": {"k1": ACCEPT}, "state": "3"}
        [question] = person.asked
        told = await person.client.notice("notifications/elicitation/complete")
        assert told["params"] == {"elicitationId": question["params"]["elicitationId"]}


def page_first(url: str = "https://example.com/grant") -> Message:
    entry = {"mode": "url", "message": "Grant access", "url": url, "elicitationId": "g-1"}
    return {"code": -32042, "message": "A page first", "data": {"elicitations": [entry]}}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_pages_that_a_server_wants_visited_first(tmp_path: Path, transport: str) -> None:
    """-32042 (MCP 2025-11-25 only): forwarded to who knows it, asked for where possible, else told of."""
    async with world("http", tmp_path, {"up": ["legacy", transport]}) as around:
        legacy = await around.person()
        steps = [{"refuse_once": page_first("https://example.com/1")}]
        reply = await legacy.calls("up__play", answer, steps=steps)
        told = page_first("https://example.com/1")
        told["data"]["elicitations"][0]["message"] = "[up] (opens example.com) Grant access"
        assert reply.message["error"] == told

        modern = await around.person(modern=True)
        calls = len(around.sent("up", "tools/call"))
        reply = await modern.calls("up__play", answer, steps=[{"refuse_once": page_first()}])
        assert json.loads(reply.text) == {}
        [question] = modern.asked
        shown = {"mode": "url", "message": "[up] (opens example.com) Grant access", "url": "https://example.com/grant"}
        assert question == {"method": "elicitation/create", "params": shown}
        again = around.sent("up", "tools/call")[calls:]
        assert len(again) == 2
        assert not {"inputResponses", "requestState"} & again[1]["params"].keys()
        assert again[0]["params"]["arguments"] == again[1]["params"]["arguments"]

        for person in (
            await around.person(elicitation={}),
            await around.person(modern=True, elicitation={}),
            await around.person(version="2025-06-18"),
        ):
            reply = await person.calls("up__play", answer, steps=[{"refuse": page_first()}])
            assert reply.failed
            assert "https://example.com/grant" in reply.text
            assert not person.asked


async def test_a_page_that_is_declined_ends_the_call_unrun(tmp_path: Path) -> None:
    async with world("http", tmp_path, {"up": ["legacy"]}) as around:
        person = await around.person(modern=True)
        reply = await person.calls("up__play", lambda _: {"action": "decline"}, steps=[{"refuse_once": page_first()}])
        assert reply.failed
        assert "decline" in reply.text
        assert len(around.sent("up", "tools/call")) == 1


# -- no answer


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_error_of_the_client_reaches_the_server_as_it_is(tmp_path: Path, transport: str) -> None:
    refusal = {"error": {"code": -1, "message": "User rejected sampling", "data": {"why": None}}}
    async with world("http", tmp_path, {"up": ["legacy", transport], "new": ["modern", transport]}) as around:
        person = await around.person()
        assert await person.asks_on("up", False, SAMPLE, answers=lambda _: refusal) == [refusal]
        reply = await person.calls("new__rounds", lambda _: refusal, rounds=[{"inputRequests": {"k": SAMPLE}}])
        assert reply.failed  # that era has no way to tell the server
        assert len(around.sent("new", "tools/call")) == 1


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_client_that_never_answers_is_waited_for_no_longer_than_configured(
    tmp_path: Path, transport: str
) -> None:
    servers = {"up": ["legacy", transport], "new": ["modern", transport]}
    async with world("http", tmp_path, servers, questions={"timeout": 0.2}) as around:
        person = await around.person()
        form, sample = await person.asks_on("up", False, FORM, SAMPLE, answers=lambda _: None)
        assert form == {"action": "cancel"}
        assert sample["error"]["code"] == -32603
        withdrawn = [
            m["params"]["requestId"] for m in person.client.arrived if m["method"] == "notifications/cancelled"
        ]
        assert sorted(withdrawn) == sorted(m["id"] for m in person.client.arrived if "id" in m)
        assert await person.asks_on("new", True, FORM, answers=lambda _: None) == [{"action": "cancel"}]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_nobody_comes_back_to_a_parked_call(tmp_path: Path, transport: str) -> None:
    """The questions are answered, then the call is withdrawn (docs/explanation/questions.md, Parked calls)."""
    async with world("http", tmp_path, {"up": ["legacy", transport]}, questions={"timeout": 0.3}) as around:
        person = await around.person(modern=True)
        steps = ask(FORM, SAMPLE)
        reply = await person.begins("up__play", steps=steps)
        assert set(reply.result["inputRequests"]) == {"q1", "q2"}
        await around.gets("up", times=2)
        outcomes = {message["id"]: message for message in around.sent("up")}
        form, sample = of_ask(steps)
        assert outcomes[form]["result"] == {"action": "cancel"}
        assert outcomes[sample]["error"]["code"] == -32603
        await around.gets("up", "notifications/cancelled")
        late = {**person.params("up__play", {"steps": steps}), "inputResponses": {"q1": ACCEPT}}
        again = await person.client.request("tools/call", {**late, "requestState": reply.result["requestState"]})
        assert again.message["error"]["code"] == -32602
        assert len(around.sent("up", "tools/call")) == 1


# -- withdrawing


@pytest.mark.parametrize("front", ["stdio", "http"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_client_that_cancels_while_it_is_asked(tmp_path: Path, front: str, transport: str) -> None:
    async with world(front, tmp_path, {"up": ["legacy", transport]}) as around:
        person = await around.person()
        call = person.begins("up__play", steps=ask(FORM))
        question = await person.questioned("elicitation/create")
        id_ = person.client._last_id
        await person.client.tell("notifications/cancelled", requestId=id_)
        cancelled = await around.gets("up", "notifications/cancelled")
        assert cancelled["params"]["requestId"] == around.sent("up", "tools/call")[-1]["id"]
        async with person.client.listening() if front == "http" else contextlib.nullcontext():
            told = await person.client.notice("notifications/cancelled")
            assert told["params"]["requestId"] == question["id"]
        assert "error" in await around.gets("up")
        call.cancel()
        assert await person.asks_on("up", False, FORM, answers=answer) == [ACCEPT]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_server_that_withdraws_its_question(tmp_path: Path, transport: str) -> None:
    """The client is told; of a question that it never saw it hears nothing."""
    steps = ask(FORM, SAMPLE)
    form, other = of_ask(steps)
    withdraw = {"send": {"method": "notifications/cancelled", "params": {"requestId": form}}}
    async with world("http", tmp_path, {"up": ["legacy", transport]}) as around:
        person = await around.person()
        call = person.begins("up__play", steps=steps)
        id_ = person.client._last_id
        question = await person.questioned("elicitation/create")
        sample = await person.questioned("sampling/createMessage")
        await person.calls("up__play", answer, steps=[withdraw])
        told = await person.client.notice("notifications/cancelled")
        assert told["params"]["requestId"] == question["id"]
        await person.answers(question, ACCEPT)  # too late
        await person.answers(sample, SAMPLED)
        assert (await around.gets("up"))["id"] == other
        await person.client.tell("notifications/cancelled", requestId=id_)
        call.cancel()
        modern = await around.person(modern=True)
        reply = await modern.begins("up__play", steps=[{"send": {"id": form, **FORM}}, withdraw])
        assert json.loads(reply.text) == {}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_session_that_ends_while_it_is_asked_ends_its_calls(tmp_path: Path, transport: str) -> None:
    async with world("http", tmp_path, {"up": ["legacy", transport]}) as around:
        person = await around.person()
        call = person.begins("up__play", steps=ask(FORM))
        await person.questioned("elicitation/create")
        await person.client.http.delete(person.client.url, headers=person.client.session)
        await around.gets("up", "notifications/cancelled")
        call.cancel()


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_modern_client_that_leaves_a_resumed_call_cancels_it(tmp_path: Path, transport: str) -> None:
    """Leaving while it waits is the cancel; while parked nothing is to be seen."""
    async with world("http", tmp_path, {"up": ["legacy", transport]}) as around:
        person = await around.person(modern=True)
        steps = ask(FORM, then=[{"send": {"id": "never", "method": "ping"}}, {"await": ["no such"]}])
        reply = await person.begins("up__play", steps=steps)
        assert not around.sent("up", "notifications/cancelled")
        params = {**person.params("up__play", {"steps": steps}), "inputResponses": {"q1": ACCEPT}}
        call = person.front.start("tools/call", {**params, "requestState": reply.result["requestState"]})
        await around.gets("up", times=2)
        call.cancel()
        await around.gets("up", "notifications/cancelled")
        parked = around.bridge.server.parking._parked
        assert (len(parked), parked.of("")) == (0, [])


async def test_a_client_that_leaves_while_it_is_asked_ends_everything(place: Place) -> None:
    """The harness proves that no process is left."""
    async with place.bridge({"up": python_server("asking", "legacy")}) as client:
        await client.initialize(**ALL)
        await client.tools_with("up__play")
        params = {"name": "up__play", "arguments": {"steps": ask(FORM)}}
        message = {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params}
        await client.write(json.dumps(message).encode() + b"\n")
        await client.notice("elicitation/create")


async def test_a_client_that_reads_no_streams_cannot_be_asked_and_gets_its_result(tmp_path: Path) -> None:
    """With JSON-only responses there is no way; the server is told."""
    async with world("http", tmp_path, {"up": ["legacy"], "new": ["modern"]}) as around:
        person = await around.person()
        usual = person.client.headers
        person.client.headers = lambda message: {**usual(message), "accept": "application/json"}
        [got] = await person.asks_on("up", False, FORM, answers=answer)
        assert got["error"]["code"] == -32600
        reply = await person.calls("new__rounds", answer, rounds=[{"inputRequests": {"k": FORM}}])
        assert reply.failed
        assert not person.asked


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_an_answer_may_take_calls_to_the_server_that_asks(tmp_path: Path, modern: bool) -> None:
    """Sampling with the same server's tools, while another client waits for that server."""
    servers = {"up": (["legacy"], {"max_instances": 1, "queue_timeout": 60})}
    async with world("http", tmp_path, servers) as around:
        person, other = await around.person(modern=modern), await around.person(modern=modern)
        params = person.params("up__play", {"steps": ask(SAMPLE)})
        if modern:
            result = (await person.client.request("tools/call", params)).result
            assert (await person.calls("up__echo", answer, text="on the way")).text == "on the way"
            given = {"inputResponses": {"q1": SAMPLED}, "requestState": result["requestState"]}
            assert list_of(await person.client.request("tools/call", {**params, **given})) == [SAMPLED]
            return
        call = person.begins("up__play", steps=ask(SAMPLE))
        question = await person.questioned("sampling/createMessage")
        waiting = [other.begins("up__play", steps=ask(FORM)), other.begins("up__echo", text="me too")]
        assert (await person.calls("up__echo", answer, text="on the way")).text == "on the way"
        await person.answers(question, SAMPLED)
        assert list_of(await call) == [SAMPLED]
        await other.answers(await other.questioned("elicitation/create"), ACCEPT)
        assert list_of(await waiting[0]) == [ACCEPT]
        assert (await waiting[1]).text == "me too"


# -- rounds


def one_after_the_other(count: int) -> list[Message]:
    steps: list[Message] = []
    for number in range(count):
        steps += [{"send": {"id": f"r{number}", **FORM}}, {"await": [f"r{number}"]}]
    return steps


async def test_a_call_is_asked_back_ten_times_at_most(tmp_path: Path) -> None:
    """A server that never has enough must not ask a person for ever."""
    async with world("http", tmp_path, {"up": ["legacy"], "new": ["modern"]}) as around:
        legacy, modern = await around.person(), await around.person(modern=True)
        reply = await modern.calls("up__play", answer, steps=one_after_the_other(11))
        got = list(json.loads(reply.text).values())
        assert got[:10] == [ACCEPT] * 10
        assert "10 times" in got[10]["error"]["message"]
        for person in (legacy, modern):
            before = len(person.asked)
            different = [
                {"inputRequests": {"k": {**FORM, "params": {**FORM["params"], "message": f"{number}"}}}}
                for number in range(11)
            ]
            reply = await person.calls("new__rounds", answer, rounds=different[:10])
            assert json.loads(reply.text) == {"answers": {"k": ACCEPT}, "state": "10"}
            assert len(person.asked) == before + 10
            reply = await person.calls("new__rounds", answer, rounds=different)
            assert reply.failed
            assert "10 times" in reply.text


async def test_a_question_that_was_not_answered_is_put_again_under_its_key(tmp_path: Path) -> None:
    async with world("http", tmp_path, {"up": ["legacy"]}) as around:
        person = await around.person(modern=True)
        params = person.params("up__play", {"steps": ask(FORM, SAMPLE)})
        first = (await person.client.request("tools/call", params)).result
        assert first["resultType"] == "input_required"
        assert set(first["inputRequests"]) == {"q1", "q2"}
        sample = next(key for key, entry in first["inputRequests"].items() if "sampling" in entry["method"])
        form = next(key for key in first["inputRequests"] if key != sample)
        given: Message = {"inputResponses": {form: ACCEPT, "stranger": {}}, "requestState": first["requestState"]}
        second = (await person.client.request("tools/call", {**params, **given})).result
        assert second["inputRequests"] == {sample: first["inputRequests"][sample]}
        given = {"inputResponses": {sample: SAMPLED}, "requestState": second["requestState"]}
        last = await person.client.request("tools/call", {**params, **given})
        assert list_of(last) == [ACCEPT, SAMPLED]


async def test_a_modern_server_that_only_puts_off_is_called_again(tmp_path: Path) -> None:
    """MCP 2026-07-28, Multi Round-Trip Requests: a result with a state and no questions means: later."""
    async with world("http", tmp_path, {"up": ["modern"]}) as around:
        for modern in (False, True):
            person = await around.person(modern=modern)
            reply = await person.calls("up__rounds", answer, rounds=[{}, {}])
            assert json.loads(reply.text) == {"answers": None, "state": "2"}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_what_a_resumed_call_tells_goes_to_the_request_that_resumed_it(tmp_path: Path, transport: str) -> None:
    """A request that has its answer gets nothing more."""

    def progress(value: int) -> Message:
        return {"send": {"method": "notifications/progress", "params": {"progressToken": "$token", "progress": value}}}

    def log(words: str) -> Message:
        return {"send": {"method": "notifications/message", "params": {"level": "info", "data": words}}}

    steps = [progress(1), log("one"), {"send": {"id": "0", **FORM}}, {"await": ["0"]}, progress(2), log("two")]
    level = {"io.modelcontextprotocol/logLevel": "info"}
    async with world("http", tmp_path, {"up": ["legacy", transport]}) as around:
        person = await around.person(modern=True)
        params = person.params("up__play", {"steps": steps}, {"progressToken": "first", **level})
        first = (await person.client.request("tools/call", params)).result
        before = told(person)
        assert before == [("first", 1), "one"]
        params = person.params("up__play", {"steps": steps}, {"progressToken": "second", **level})
        given = {"inputResponses": {"q1": ACCEPT}, "requestState": first["requestState"]}
        assert json.loads((await person.client.request("tools/call", {**params, **given})).text) == {'"0"': ACCEPT}
        assert told(person)[len(before) :] == [("second", 2), "two"]


def told(person: Person) -> list[Any]:
    """Progress and log messages, in short. Progress below zero is the bridge's own, while a server starts."""
    params = [message["params"] for message in person.client.arrived if "id" not in message]
    params = [told for told in params if told.get("progress", 0) >= 0]
    return [p["data"] if "data" in p else (p["progressToken"], p["progress"]) for p in params]


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_prompts_and_resources_may_ask_too(tmp_path: Path, modern: bool) -> None:
    """MCP 2026-07-28, Multi Round-Trip Requests, Supported Requests: these three may be answered by a question."""
    async with world("http", tmp_path, {"up": ["legacy"]}) as around:
        person = await around.person(modern=modern)
        steps = ask(FORM, then=[{"answer": {"messages": []}}])
        params = person.params("up__play", {"steps": json.dumps(steps)})
        assert (await person.requests("prompts/get", params, answer)).result["messages"] == []
        assert around.sent("up")[-1]["result"] == ACCEPT
        read = {"uri": "memo://it", "_meta": params["_meta"]}
        assert (await person.requests("resources/read", read, answer)).result["contents"][0]["text"] == "it"
        assert [question["params"]["message"] for question in person.asked] == [
            "[up] Who are you?",
            "[up] Who is there?",
        ]
    folder = tmp_path / "new"
    folder.mkdir()
    async with world("http", folder, {"new": ["modern"]}) as around:
        person = await around.person(modern=modern)
        params = person.params("new__rounds", {"rounds": json.dumps([{"inputRequests": {"k": FORM}}])})
        assert (await person.requests("prompts/get", params, answer)).result["messages"] == []
        assert around.sent("new", "prompts/get")[-1]["params"]["inputResponses"] == {"k": ACCEPT}
        last = (await person.requests("resources/read", read, answer)).result
        assert last["contents"][0]["text"] == "it"
        assert len(person.asked) == 2
        if modern:
            assert last["ttlMs"] == 0  # reached by answers: good for this once


async def test_what_is_relayed_goes_on_at_another_bridge_with_the_same_key(tmp_path: Path) -> None:
    """Between modern peers nothing is kept, so it survives restarts and replicas; a parked call is refused there."""
    steps, state, given = ask(FORM), "", {}
    keys = {"state_key": "one key for all replicas"}
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with world("http", folder, {"new": ["modern"], "up": ["legacy"]}, questions=keys) as around:
            person = await around.person(modern=True)
            relayed = person.params("new__rounds", {"rounds": [{"inputRequests": {"k": FORM}}]})
            parked = person.params("up__play", {"steps": steps})
            if not number:
                state, other = [
                    (await person.client.request("tools/call", params)).result["requestState"]
                    for params in (relayed, parked)
                ]
                continue
            given = {"inputResponses": {"k": ACCEPT}}
            reply = await person.client.request("tools/call", {**relayed, **given, "requestState": state})
            assert json.loads(reply.text) == {"answers": {"k": ACCEPT}, "state": "1"}
            reply = await person.client.request("tools/call", {**parked, **given, "requestState": other})
            assert reply.message["error"]["code"] == -32602
            assert not around.sent("up", "tools/call")


async def test_a_question_that_is_withdrawn_while_its_call_is_parked(tmp_path: Path) -> None:
    """The client comes back with an answer that nobody wants any more, and gets the result."""
    steps = ask(FORM)[:1]
    withdraw = {"send": {"method": "notifications/cancelled", "params": {"requestId": of_ask(steps)[0]}}}
    async with world("http", tmp_path, {"up": ["legacy", "http"]}) as around:
        person = await around.person(modern=True)
        params = person.params("up__play", {"steps": [*steps, {"await": ["go"]}]})
        state = (await person.client.request("tools/call", params)).result["requestState"]
        first = around.sent("up", "tools/call")[-1]["id"]
        own = {"send": {"id": first, "result": {"content": [{"type": "text", "text": "done without"}]}}}
        await person.begins("up__play", steps=[withdraw])
        await person.begins("up__play", steps=[own])
        given = {"inputResponses": {"q1": ACCEPT}, "requestState": state}
        assert (await person.client.request("tools/call", {**params, **given})).text == "done without"
        assert not around.sent("up")
        assert len(around.bridge.server.parking._parked) == 0


# -- keeping clients apart


@pytest.mark.parametrize("capabilities", [{"experimental": {}}, ALL], ids=["nothing", "everything"])
async def test_clients_that_are_kept_apart_have_servers_of_their_own(tmp_path: Path, capabilities: Message) -> None:
    """Issue 3, isolation per client: also of clients that can be asked nothing."""
    async with world("http", tmp_path, {"up": (["legacy"], {"share": "session"})}) as around:
        people = [await around.person(**capabilities) for _ in range(2)]
        people.append(await around.person(modern=True, **capabilities))
        places = [json.loads((await person.calls("up__where", answer)).text)[0] for person in people * 2]
        assert places[:3] == places[3:]
        assert len(set(places)) == 3
        await people[0].client.http.delete(people[0].client.url, headers=people[0].client.session)
        await eventually(partial(lives, places[0]), lambda alive: not alive)
        assert await lives(places[1])


async def test_the_clients_of_a_project_share_a_server_that_works_in_it(tmp_path: Path) -> None:
    servers = {"up": (["legacy"], {"share": "project"})}
    async with world("http", tmp_path, servers, http={"projects": [str(tmp_path)]}) as around:
        folders = [tmp_path / "one", tmp_path / "two words"]
        for folder in folders:
            folder.mkdir()
        found = []
        for folder in [*folders, folders[0]]:
            person = await around.person()
            roots = {"roots": [{"uri": folder.as_uri()}, {"uri": "file:///elsewhere"}]}
            found.append(json.loads((await person.calls("up__where", lambda _, roots=roots: roots)).text))
        assert [where for _, where in found] == [str(folders[0]), str(folders[1]), str(folders[0])]
        assert found[0] == found[2]


@pytest.mark.parametrize("front", ["stdio", "http", "sse", "websocket"])
async def test_where_a_server_works_is_for_this_users_own_programs_to_say(front: str, tmp_path: Path) -> None:
    """Whoever has a token of the HTTP front would else choose a directory whose files a program runs (issue 7)."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    roots = {"roots": [{"uri": theirs.as_uri()}]}
    servers = {"up": (["legacy"], {"share": "project"})}
    async with world(front, tmp_path, servers, http={"projects": [str(tmp_path / "ours")]}) as around:
        person = await around.person(roots={})
        where = json.loads((await person.calls("up__where", lambda _: roots)).text)[1]
        assert where == str(theirs if front == "stdio" else Path.cwd())


async def lives(pid: int) -> bool:
    """Whether there is such a process."""
    return Path(f"/proc/{pid}").exists()
