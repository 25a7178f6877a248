"""Servers that ask wrongly, and clients that answer wrongly, twice, late, or for somebody else (issue 3)."""

import asyncio
import itertools
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from mcpbridge.downstream.revisions.request_meta import modern_client
from mcpbridge.protocol.jsonrpc import Frame, encode
from support.answering_clients import ACCEPT, ALL, FORM, PAGE, ROOTS, SAMPLE, Person, World, ask, list_of, of_ask, world
from support.rpc import Message, Reply

UPSTREAMS = pytest.mark.parametrize("transport", ["stdio", "http"])
INVALID = {"code": -32602, "message": "Invalid or expired requestState"}


@pytest.fixture(scope="module")
async def around(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A bridge that the tests share, with a server of each era, and two that nobody hears for the rest of a second."""
    servers = {"up": ["legacy"], "new": ["modern"], "healthy": ["legacy"], "loud": ["legacy"], "louder": ["legacy"]}
    async with world("http", tmp_path_factory.mktemp("shared"), servers) as around:
        yield around


def accept(_: Message) -> Message:
    return ACCEPT


def questions_of(person: Person) -> list[Message]:
    """What a legacy client was asked, each as it came."""
    return [message for message in person.client.arrived if "id" in message]


# -- answers of clients


@UPSTREAMS
async def test_an_answer_that_comes_twice_reaches_the_server_once(tmp_path: Path, transport: str) -> None:
    async with world("http", tmp_path, {"up": ["legacy", transport]}) as around:
        person = await around.person()
        steps = ask(FORM, SAMPLE)
        call = person.begins("up__play", steps=steps)
        form, sample = await person.questioned("elicitation/create"), await person.questioned("sampling/createMessage")
        for result in (ACCEPT, {"action": "decline"}, ACCEPT):
            await person.answers(form, result)
        await person.answers(sample, {"error": {"code": -1, "message": "no"}})
        assert list_of(await call) == [ACCEPT, {"error": {"code": -1, "message": "no"}}]
        await person.answers(form, ACCEPT)  # and long after
        # once each; over HTTP each answer is a request of its own, and nothing orders them
        assert sorted(message["id"] for message in around.sent("up")) == sorted(of_ask(steps))


async def test_answers_to_nothing_and_garbage_harm_nobody(tmp_path: Path) -> None:
    async with world("stdio", tmp_path, {"up": ["legacy"]}) as around:
        person = await around.person()
        call = person.begins("up__play", steps=ask(FORM))
        question = await person.questioned("elicitation/create")
        for id_ in (999, "x", -1, 1.5, str(question["id"]) + "0"):
            await person.answers({"id": id_}, ACCEPT)
        await person.front.answer({"jsonrpc": "2.0", "id": question["id"], "result": [1, 2]})
        [got] = list_of(await call)
        assert got["error"]["code"] == -32603
        call = person.begins("up__play", steps=ask(FORM))
        question = await person.questioned("elicitation/create", after=1)
        await person.front.answer({"jsonrpc": "2.0", "id": question["id"], "error": "no"})
        [got] = list_of(await call)
        assert (got["error"]["code"], type(got["error"]["message"])) == (-32603, str)
        assert await person.asks_on("up", False, FORM, answers=accept) == [ACCEPT]


async def test_nobody_answers_for_another_client(around: World) -> None:
    """The ids of questions are easy to guess; each session has its own."""
    asked, other = await around.person(), await around.person()
    call = asked.begins("up__play", steps=ask(FORM))
    question = await asked.questioned("elicitation/create")
    for id_ in (question["id"], str(question["id"])):
        await other.answers({"id": id_}, {"action": "accept", "content": {"name": "Eve"}})
    await asked.answers(question, ACCEPT)
    assert list_of(await call) == [ACCEPT]


@pytest.mark.parametrize("given", [5, [], "x", {"q1": 5}, {"q1": None}, {"q9": ACCEPT}, {}, None], ids=json.dumps)
async def test_answers_of_a_wrong_shape_can_be_put_right(around: World, given: object) -> None:
    """A modern client's mistake costs it no more than another try, and the server none at all."""
    person = await around.person(modern=True)
    params = person.params("up__play", {"steps": ask(FORM)})
    state = (await person.client.request("tools/call", params)).result["requestState"]
    wrong = {"inputResponses": given} if given is not None else {}
    reply = await person.client.request("tools/call", {**params, **wrong, "requestState": state})
    if "error" in reply.message:
        assert reply.message["error"]["code"] == -32602
    else:
        assert set(reply.result["inputRequests"]) == {"q1"}
        state = reply.result["requestState"]
    right = {"inputResponses": {"q1": ACCEPT}, "requestState": state}
    assert list_of(await person.client.request("tools/call", {**params, **right})) == [ACCEPT]


async def test_answers_that_nobody_asked_for_do_not_reach_a_server(around: World) -> None:
    person = await around.person(modern=True)
    params = {**person.params("new__rounds", {"rounds": []}), "inputResponses": {"k": ACCEPT}}
    assert json.loads((await person.client.request("tools/call", params)).text)["answers"] is None


# -- states that clients bring back


class Held:
    """A modern client's call that waits for an answer, parked or relayed."""

    def __init__(self, around: World, person: Person, tool: str, arguments: Message) -> None:
        self.around, self.person, self.tool, self.arguments = around, person, tool, arguments
        self.server = tool.partition("__")[0]
        self.state = ""
        self.key = ""

    async def begin(self) -> "Held":
        params = self.person.params(self.tool, self.arguments)
        result = (await self.person.client.request("tools/call", params)).result
        self.state = result["requestState"]
        [self.key] = result["inputRequests"]
        return self

    def retry(self, **changed: Any) -> Message:
        params = self.person.params(self.tool, self.arguments)
        return {**params, "inputResponses": {self.key: ACCEPT}, "requestState": self.state, **changed}

    async def refused(self, params: Message, message: str = INVALID["message"]) -> None:
        """Assert that this is refused, and that the server does not hear of it."""
        before = len(self.around.journal(self.server))
        reply = await self.person.client.request("tools/call", params)
        assert reply.message["error"] == {"code": -32602, "message": message}
        assert len(self.around.journal(self.server)) == before

    async def works(self) -> None:
        reply = await self.person.client.request("tools/call", self.retry())
        assert "Ada" in reply.text

    @property
    def calls(self) -> int:
        return len(self.around.sent(self.server, "tools/call"))


NUMBERS = itertools.count()

KINDS = pytest.mark.parametrize("kind", ["parked", "relayed", "visited"])


async def held(around: World, kind: str) -> Held:
    page = {**PAGE["params"], "elicitationId": str(next(NUMBERS))}
    tool, arguments = {
        "parked": ("up__play", {"steps": ask(FORM), "x": 1, "y": [1, 2.5]}),
        "relayed": ("new__rounds", {"rounds": [{"inputRequests": {"k": FORM}}], "x": 1, "y": [1, 2.5]}),
        "visited": (
            "up__play",
            {
                "steps": [
                    {"refuse_once": {"code": -32042, "message": "", "data": {"elicitations": [page]}}},
                    {"answer": {"content": [{"type": "text", "text": "Ada"}]}},
                ],
                "x": 1,
                "y": [1, 2.5],
            },
        ),
    }[kind]
    return await Held(around, await around.person(modern=True), tool, arguments).begin()


@KINDS
async def test_a_forged_state_runs_nothing(around: World, kind: str) -> None:
    waiting = await held(around, kind)
    text = waiting.state
    middle = len(text) // 2
    other = "A" if text[middle] != "A" else "B"
    for forged in ("", "x", "1", text[:-4], text + "AAAA", text[:middle] + other + text[middle + 1 :], "é", "A" * 99):
        await waiting.refused(waiting.retry(requestState=forged))
    for forged in (5, None, {}, ["x"]):
        await waiting.refused(waiting.retry(requestState=forged))
    await waiting.works()


@KINDS
async def test_a_state_opens_for_its_own_call_alone(around: World, kind: str) -> None:
    """MCP 2026-07-28, Multi Round-Trip Requests, Server Requirements: bound to method, name and arguments."""
    waiting = await held(around, kind)
    arguments = waiting.arguments
    for changed in (
        {**arguments, "x": 2},
        {**arguments, "x": "1"},
        {**arguments, "x": 1.0},
        {**arguments, "x": True},
        {**arguments, "y": [2.5, 1]},
        {**arguments, "z": None},
        {},
    ):
        await waiting.refused(waiting.retry(arguments=changed))
    for tool in ("up__echo", "up__where", "new__echo", "new__say"):
        await waiting.refused(waiting.retry(name=tool))
    await waiting.refused({key: value for key, value in waiting.retry().items() if key != "arguments"})
    reordered = dict(reversed(arguments.items()))
    reply = await waiting.person.client.request("tools/call", waiting.retry(arguments=reordered))
    assert "Ada" in reply.text  # the same call, written in another order


@KINDS
async def test_a_state_is_of_no_use_to_somebody_else(around: World, kind: str) -> None:
    """MCP 2026-07-28, Multi Round-Trip Requests, Server Requirements: bound to the principal."""
    waiting = await held(around, kind)
    before = len(around.journal(waiting.server))
    for principal in ("bob", "principal ", "\0"):
        frame = Frame(id=Raw(b"1"), method="tools/call", params=Raw(encode(waiting.retry())))
        server = around.bridge.server
        answer = await server.answer(modern_client(frame, principal), frame, lambda message: None)
        assert json.loads(answer.data)["error"] == INVALID
    assert len(around.journal(waiting.server)) == before
    await waiting.works()


@KINDS
async def test_a_replayed_state_runs_nothing(around: World, kind: str) -> None:
    waiting = await held(around, kind)
    await waiting.works()
    calls = waiting.calls
    for _ in range(3):
        await waiting.refused(waiting.retry())
    assert waiting.calls == calls


@KINDS
async def test_of_two_retries_at_once_one_wins(around: World, kind: str) -> None:
    waiting = await held(around, kind)
    before = waiting.calls
    retries = [waiting.person.client.request("tools/call", waiting.retry()) for _ in range(4)]
    replies: list[Reply] = await asyncio.gather(*retries)
    assert sorted("error" in reply.message for reply in replies) == [False, True, True, True]
    assert {reply.message["error"]["code"] for reply in replies if "error" in reply.message} == {-32602}
    assert waiting.calls == before + (kind != "parked")


@KINDS
async def test_an_expired_state_runs_nothing(around: World, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = await held(around, kind)
    sealer = around.bridge.server.parking._sealer
    with monkeypatch.context() as patch:
        patch.setattr(sealer, "_clock", lambda: time.time() + 601)
        await waiting.refused(waiting.retry())
    await waiting.works()  # the refusal used nothing up


async def test_the_state_of_an_older_round_is_over(around: World) -> None:
    person = await around.person(modern=True)
    waiting = Held(around, person, "up__play", {"steps": [*ask(FORM), *ask(SAMPLE)]})
    await waiting.begin()
    first = waiting.retry()
    second = (await person.client.request("tools/call", first)).result
    assert second["resultType"] == "input_required"
    await waiting.refused(first)
    sampled = {"role": "assistant", "content": {"type": "text", "text": "ho"}, "model": "m"}
    given = {"inputResponses": dict.fromkeys(second["inputRequests"], sampled)}
    last = await person.client.request("tools/call", {**first, **given, "requestState": second["requestState"]})
    assert list_of(last) == [ACCEPT, sampled]


async def test_a_state_of_the_upstream_itself_is_none_of_ours(around: World) -> None:
    """What a client brings is opened or refused; it never reaches the server as it is."""
    waiting = await held(around, "relayed")
    for declared in (ALL, {}):
        waiting.person.capabilities = declared
        await waiting.refused(waiting.retry(requestState="1"))


async def test_numbers_of_any_size_are_bound_and_arrive(tmp_path: Path) -> None:
    """Nothing that a client sends is lost because it can be asked something."""
    digits = "9" * 5000
    async with world("stdio", tmp_path, {"up": ["legacy"]}) as around:
        person = await around.person(modern=True)
        params = json.dumps(person.params("up__raw_arguments", {"n": 0})).replace('"n": 0', f'"n": {digits}')
        line = f'{{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{params}}}\n'
        await person.client.write(line.encode())
        assert digits in (await person.client.answer_to(77)).text


async def test_calls_that_are_never_come_back_to_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.downstream.elicitation.parked_calls.MAX_PARKED", 2)
    async with world("http", tmp_path, {"up": ["legacy", "http"]}) as around:
        person = await around.person(modern=True)
        tool = "up__play"
        parked = [await Held(around, person, tool, {"steps": ask(FORM)}).begin() for _ in range(2)]
        refused = await person.client.request("tools/call", person.params(tool, {"steps": ask(FORM)}))
        assert refused.message["error"]["code"] == -32602
        await around.gets("up", "notifications/cancelled")
        await parked[0].works()
        third = await Held(around, person, tool, {"steps": ask(FORM)}).begin()
        for waiting in (parked[1], third):
            await waiting.works()


# -- questions of servers


async def test_a_question_outside_of_any_call_is_put_to_nobody(tmp_path: Path) -> None:
    later = [{"answer": {"content": []}}, *({"send": {"id": f"late-{n}", **q}} for n, q in enumerate((SAMPLE, FORM)))]
    async with world("http", tmp_path, {"up": ["legacy"]}) as around:
        person = await around.person()
        async with person.client.listening():
            await person.calls("up__play", accept, steps=later)
            await around.gets("up", times=2)
            assert [message["error"]["code"] for message in around.sent("up")] == [-32600] * 2
            assert await person.asks_on("up", False, FORM, answers=accept) == [ACCEPT]
            assert len(questions_of(person)) == 1


async def test_a_modern_server_that_sends_requests_is_told_that_there_are_none(tmp_path: Path) -> None:
    """MCP 2026-07-28, stdio, Receiving Messages: servers must not send any."""
    asks = [
        {"id": f"q{number}", **question} for number, question in enumerate((FORM, SAMPLE, {"method": "roots/list"}))
    ]
    async with world("stdio", tmp_path, {"new": ["modern"]}) as around:
        person = await around.person()
        assert (await person.calls("new__say", accept, messages=asks)).text == "said"
        await around.gets("new", times=3)
        assert [message["error"]["code"] for message in around.sent("new")] == [-32601] * 3
        assert not person.asked


@pytest.mark.parametrize(("modern", "asking"), [(False, "loud"), (True, "louder")])
async def test_a_thousand_questions_at_once_do_not_bury_the_client(
    around: World, modern: bool, asking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    person, other = await around.person(modern=modern), await around.person()
    steps = ask(*[FORM] * 1000)
    gives = person.client.request if modern else person.answers

    async def gives_late(*given: Any) -> Any:
        """Each answer makes room for one more question, so none is given before the others have been refused."""
        if not modern or "inputResponses" in given[1]:
            await around.gets(asking, times=1000 - 64)
        return await gives(*given)

    monkeypatch.setattr(person.client if modern else person, "request" if modern else "answers", gives_late)
    reply, *_ = await asyncio.gather(
        person.calls(f"{asking}__play", accept, steps=steps),
        *(other.calls("healthy__echo", accept, text="still") for _ in range(5)),
    )
    got = list_of(reply)
    assert len(got) == 1000
    accepted = got.count(ACCEPT)
    assert 1 <= accepted <= 64
    assert len(person.asked) == accepted
    assert {outcome["error"]["code"] for outcome in got if "error" in outcome} == {-32603}


async def test_an_id_that_a_server_uses_twice_at_once_has_one_answer(tmp_path: Path) -> None:
    twice = [{"send": {"id": "same", **FORM}}, {"send": {"id": "same", **SAMPLE}}, {"send": {"id": "0", **ROOTS}}]
    again = [{"send": {"id": "same", **FORM}}, {"await": ["same"]}]
    async with world("stdio", tmp_path, {"up": ["legacy"]}) as around:
        person = await around.person()
        call = person.begins("up__play", steps=[*twice, {"await": ["same", "0"]}])
        last = await person.questioned("roots/list")
        assert [question["method"] for question in questions_of(person)] == ["elicitation/create", "roots/list"]
        await person.answers(last, {"roots": []})
        await person.answers(questions_of(person)[0], ACCEPT)
        assert json.loads((await call).text) == {'"same"': ACCEPT, '"0"': {"roots": []}}
        reply = await person.calls("up__play", accept, steps=again)
        assert json.loads(reply.text) == {'"same"': ACCEPT}
        assert len(around.sent("up")) == 3


@pytest.mark.parametrize(
    "question",
    [
        {"method": "elicitation/create"},
        {"method": "elicitation/create", "params": {}},
        {"method": "elicitation/create", "params": []},
        {"method": "elicitation/create", "params": {"message": 5}},
        {"method": "elicitation/create", "params": {"message": "a", "mode": "hologram"}},
        {"method": "elicitation/create", "params": {"message": "a", "mode": 5}},
        {"method": "sampling/createMessage", "params": "x"},
        {"method": "sampling/createMessage", "params": []},
        {"method": "tools/call", "params": {"name": "x"}},
    ],
    ids=json.dumps,
)
async def test_a_question_that_is_none_is_refused_and_shown_to_nobody(around: World, question: Message) -> None:
    for modern in (False, True):
        person = await around.person(modern=modern)
        [got] = await person.asks_on("up", False, question, answers=accept)
        assert got["error"]["code"] in (-32601, -32602)
        assert not person.asked


@pytest.mark.parametrize(
    "round_",
    [
        {"inputRequests": {"k": {"method": "tools/call", "params": {}}}},
        {"inputRequests": {"k": {"params": {}}}},
        {"inputRequests": {"k": 5}},
        {"inputRequests": [FORM]},
        {"inputRequests": {"k": {"method": "elicitation/create", "params": {"message": 5}}}},
        {"inputRequests": {"k": {"method": "elicitation/create", "params": []}}},
        {"inputRequests": {}, "requestState": None},
        {"inputRequests": {"k": FORM}, "requestState": 5},
    ],
    ids=json.dumps,
)
async def test_a_modern_server_that_asks_what_cannot_be_read_fails_its_call(around: World, round_: Message) -> None:
    for modern in (False, True):
        person = await around.person(modern=modern)
        reply = await person.calls("new__rounds", accept, rounds=[round_])
        assert reply.failed, reply.message
        assert "'new'" in reply.text


@UPSTREAMS
async def test_a_second_answer_and_one_to_a_cancelled_call_reach_nobody(tmp_path: Path, transport: str) -> None:
    def answer(words: str) -> Message:
        return {"content": [{"type": "text", "text": words}]}

    async with world("stdio", tmp_path, {"up": ["legacy", transport]}) as around:
        person = await around.person()
        twice = [{"answer": answer("first")}, {"answer": answer("second")}]
        assert (await person.calls("up__play", accept, steps=twice)).text == "first"
        call = person.begins("up__play", steps=ask(FORM))
        question = await person.questioned("elicitation/create")
        await person.client.tell("notifications/cancelled", requestId=person.client._last_id)
        await person.answers(question, ACCEPT)
        await around.gets("up", "notifications/cancelled")
        cancelled = around.sent("up", "tools/call")[-1]["id"]
        late = [{"send": {"id": cancelled, "result": answer("late")}}, {"answer": answer("own")}]
        assert (await person.calls("up__play", accept, steps=late)).text == "own"
        call.cancel()


async def test_a_server_that_dies_while_it_asks_withdraws_its_question(tmp_path: Path) -> None:
    async with world("http", tmp_path, {"up": ["legacy"]}) as around:
        person = await around.person()
        call = person.begins("up__play", steps=ask(FORM))
        question = await person.questioned("elicitation/create")
        [(pid, _), *_] = [entry for entry in around.journal("up") if entry[1].get("method") == "tools/call"]
        os.kill(pid, signal.SIGKILL)
        assert (await call).failed
        async with person.client.listening():
            told = await person.client.notice("notifications/cancelled")
        assert told["params"]["requestId"] == question["id"]
        await person.answers(question, ACCEPT)
