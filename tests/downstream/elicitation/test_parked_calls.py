"""Calls of modern clients that wait for an answer: what they cost those that ask nothing, and how each wait ends."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from msgspec import Raw

from mcpbridge.core.elicitation import ELICIT, ClientCapabilities, Question, QuestionRefused
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.elicitation import parked_calls as parking_module
from mcpbridge.downstream.elicitation.parked_calls import Parking
from mcpbridge.downstream.elicitation.request_state import Binding, Sealer
from mcpbridge.protocol.body import Body

QUESTION = Question("up", ELICIT, Raw(b'{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}'))


def client(channel: object = None) -> Client:
    return Client(
        modern=True, version="2026-07-28", capabilities=ClientCapabilities(form=True, url=True), channel=channel
    )


def call(params: str = '{"name":"t"}') -> Call:
    return Call("tools/call", "up", "t", Body(Raw(params.encode())))


class Plan:
    """Calls that run until they are cancelled, and ask when they are told to."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.ended: list[Call] = []
        self.asks = asyncio.Event()
        self.answers: list[Any] = []
        self.came = asyncio.Event()

    async def __call__(self, call: Call) -> Body:
        self.calls.append(call)
        self.came.set()
        try:
            await self.asks.wait()
            self.answers.append(json.loads(bytes(await call.client.ask(QUESTION))))
            await asyncio.sleep(60)
        finally:
            self.ended.append(call)
        return Body(b"{}")


async def outcome(future: "asyncio.Future[Raw]") -> BaseException | None:
    with anyio.fail_after(30):
        await asyncio.wait([future])
    return future.exception()


async def test_what_is_asked_from_elsewhere_ends_when_the_client_leaves() -> None:
    """A sign-in that other calls need too must not wait for an answer that nobody can give."""
    plan = Plan()
    parking = Parking(plan, Sealer(), seconds=60)
    with anyio.fail_after(30):
        request = asyncio.ensure_future(parking.deliver(client(), call()))
        await plan.came.wait()
        elicitor = plan.calls[0].client
        early = asyncio.ensure_future(elicitor.ask(QUESTION))
        request.cancel()
        assert isinstance(await outcome(early), QuestionRefused)
        late = asyncio.ensure_future(elicitor.ask(QUESTION))
        assert isinstance(await outcome(late), QuestionRefused)


async def test_calls_that_wait_end_with_the_channel_that_they_came_on() -> None:
    """Each keeps a whole session of its server waiting."""
    plan, here, there = Plan(), object(), object()
    plan.asks.set()
    parking = Parking(plan, Sealer(), seconds=60)
    with anyio.fail_after(30):
        for channel in (here, there):
            result = await parking.deliver(client(channel), call())
            assert json.loads(bytes(result.data))["resultType"] == "input_required"
        parking.left(here)
        while not plan.ended:
            await asyncio.sleep(0)
        assert plan.ended == plan.calls[:1]
        assert plan.answers == [{"action": "cancel"}]
        parking.end_all()
        while len(plan.ended) < 2:
            await asyncio.sleep(0)


async def test_the_call_whose_client_is_away_longest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client over HTTP may never come back, and each of its calls keeps a session of the server."""
    plan = Plan()
    plan.asks.set()
    parking = Parking(plan, Sealer(), seconds=60)
    with anyio.fail_after(30):
        for _ in range(2):
            await parking.deliver(client(), call())
        assert not parking.give_way("up", ""), "a person may be at it"
        monkeypatch.setattr(parking_module, "OWN_PATIENCE", 0)
        assert not parking.give_way("another", "")
        assert not parking.give_way("up", "somebody else")
        assert parking.give_way("up", "")
        while not plan.ended:
            await asyncio.sleep(0)
        assert plan.ended == plan.calls[:1]
        assert plan.answers == [{"action": "cancel"}]
        parking.end_all()


async def test_a_call_that_asks_nothing_is_bound_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look at all its arguments would cost more than the call, where they are long."""
    parking = Parking(lambda _: _done(), Sealer(), seconds=60)

    def refuse(*_: object) -> None:
        raise AssertionError("nothing is to be bound")

    monkeypatch.setattr(Binding, "value", property(refuse))
    with anyio.fail_after(30):
        assert bytes((await parking.deliver(client(), call())).data) == b'{"content":[]}'


async def _done() -> Body:
    return Body(b'{"content":[]}')


def test_a_state_belongs_to_the_same_arguments_however_they_are_written() -> None:
    first = Binding(client(), call('{"name":"t","arguments":{"a":1,"b":[1.50,{}]},"_meta":{"x":1}}'))
    same = Binding(client(), call('{"arguments": {"b": [1.50, {}], "a": 1}, "name": "t", "requestState": "s"}'))
    assert first.value == same.value
    for other in (
        '{"name":"t","arguments":{"a":1.0,"b":[1.50,{}]}}',
        '{"name":"t","arguments":{"a":"1","b":[1.50,{}]}}',
        '{"name":"t","arguments":{"a":9,"b":[1.50,{}],"a":1}}',  # of which a server may take the 9
    ):
        assert Binding(client(), call(other)).value != first.value


def test_a_state_is_bound_to_what_came_whatever_the_call_becomes() -> None:
    made = call('{"name":"t","arguments":{}}')
    bound = Binding(client(), made)
    made.params.put("name", "another")
    assert bound.value == Binding(client(), call('{"name":"t","arguments":{}}')).value
