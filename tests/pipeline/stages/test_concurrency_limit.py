"""How many calls run at a time, and who waits for whom."""

import asyncio
import json
import random
from collections import Counter
from typing import Any

import anyio
import pytest
from msgspec import Raw

from mcpbridge.base.errors import Overloaded
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.core.context import Session
from mcpbridge.core.elicitation import ELICIT, Question
from mcpbridge.core.model import Call
from mcpbridge.pipeline.stage import Stage
from mcpbridge.pipeline.stages.concurrency_limit import ConcurrencyLimit
from mcpbridge.protocol.body import Body
from support.upstreams.scripted_upstream import Someone, call_of
from support.virtual_time import standing_time

SERIAL = CallOptions(is_serial=True)


class Caller:
    """A client."""

    principal = name = version = ""

    def __init__(self) -> None:
        self.session = Session()


class ToolNamed:
    """A tool without more than its id."""

    definition, hints, headers = b"{}", None, dict[tuple[str, ...], str]()

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.server, _, self.name = id_.partition("/")
        self.wire = f"{self.server}__{self.name}"


class Server:
    """Where calls end up: it counts them, and lets them go one by one."""

    def __init__(self) -> None:
        self.running: list[Call] = []
        self.began: list[Call] = []
        self.most = 0
        self._ends: dict[Call, asyncio.Event] = {}

    async def deliver(self, call: Call) -> Body:
        self.running.append(call)
        self.began.append(call)
        self.most = max(self.most, len(self.running))
        ends = self._ends[call] = asyncio.Event()
        try:
            await ends.wait()
        finally:
            self.running.remove(call)
        return Body()

    def end(self, call: Call) -> None:
        self._ends[call].set()


def limits_of(patience: float = 30, **settings: object) -> ConcurrencyLimit:
    return ConcurrencyLimit(CallDefaults.model_validate(settings), lambda server: patience)


def stage_of(limits: ConcurrencyLimit, options: CallOptions, id_: str = "up/echo") -> Stage:
    tool: Any = ToolNamed(id_)
    stage = limits.stage(tool, options)
    assert stage is not None
    return stage


def turn(name: str) -> Body:
    return Body(json.dumps({"mcpbridge/turn": name}).encode())


async def settled() -> None:
    """Everything that can go on has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)


def begin(stage: Stage, server: Server, call: Call) -> "asyncio.Task[Body]":
    async def run() -> Body:
        return await stage(call, server.deliver)

    return asyncio.ensure_future(run())


async def finish(server: Server, *tasks: "asyncio.Task[Body]") -> None:
    """Let calls end in the order in which they run, until these are over."""
    with anyio.fail_after(30):
        while not all(task.done() for task in tasks):
            for call in list(server.running):
                server.end(call)
            await asyncio.sleep(0)
    for task in tasks:
        task.result()


# -- which calls wait


async def test_a_tool_runs_as_often_at_a_time_as_it_may_whoever_calls_and_in_order() -> None:
    limits, server = limits_of(), Server()
    stage = stage_of(limits, CallOptions(max_concurrent=2))
    calls = [call_of(caller=Caller()) for _ in range(7)]
    tasks = [begin(stage, server, call) for call in calls]
    await settled()
    assert server.running == calls[:2]
    server.end(calls[1])
    await settled()
    assert server.running == [calls[0], calls[2]]
    await finish(server, *tasks)
    assert server.began == calls
    assert server.most == 2
    assert not limits.slots
    assert not limits.slots.held


async def test_a_limit_of_one_tool_is_none_of_another() -> None:
    limits, server = limits_of(), Server()
    tasks = [begin(stage_of(limits, CallOptions(max_concurrent=1), name), server, call_of()) for name in ("a/x", "a/y")]
    await settled()
    assert len(server.running) == 2
    await finish(server, *tasks)


async def test_changes_of_one_client_at_one_server_run_one_after_another_and_nothing_else_waits_for_them() -> None:
    limits, server, ann, bob = limits_of(), Server(), Caller(), Caller()
    create, delete = stage_of(limits, SERIAL, "a/create"), stage_of(limits, SERIAL, "a/delete")
    elsewhere, read = stage_of(limits, SERIAL, "b/create"), stage_of(limits, CallOptions(effect="read"), "a/read")
    first, second, of_bob, at_b, reading = (call_of(caller=who) for who in (ann, ann, bob, ann, ann))
    tasks = [begin(create, server, first), begin(delete, server, second), begin(create, server, of_bob)]
    tasks += [begin(elsewhere, server, at_b), begin(read, server, reading)]
    await settled()
    assert server.running == [first, of_bob, at_b, reading]
    server.end(first)
    await settled()
    assert second in server.running
    await finish(server, *tasks)
    assert not limits.slots


async def test_calls_of_one_client_run_so_many_at_a_time() -> None:
    limits, server, ann, bob = limits_of(max_per_client=2), Server(), Caller(), Caller()
    stages = [stage_of(limits, CallOptions(), name) for name in ("a/x", "b/x", "c/x")]
    of_ann = [call_of(caller=ann) for _ in range(3)]
    of_bob = call_of(caller=bob)
    tasks = [begin(stage, server, call) for stage, call in zip(stages, of_ann, strict=True)]
    tasks.append(begin(stages[0], server, of_bob))
    await settled()
    assert server.running == [*of_ann[:2], of_bob]
    await finish(server, *tasks)


async def test_calls_of_one_turn_run_so_many_at_a_time_and_others_do_not_wait_for_them() -> None:
    limits, server, ann, bob = limits_of(batch=3), Server(), Caller(), Caller()
    stage = stage_of(limits, CallOptions())
    of_turn = [call_of(caller=ann, meta=turn("1")) for _ in range(5)]
    others = [call_of(caller=ann, meta=meta) for meta in (turn("2"), None, Body(b'{"mcpbridge/turn":null}'))]
    others.append(call_of(caller=bob, meta=turn("1")))
    tasks = [begin(stage, server, call) for call in [*of_turn, *others]]
    await settled()
    assert set(server.running) == {*of_turn[:3], *others}
    await finish(server, *tasks)
    assert [call for call in server.began if call in of_turn] == of_turn
    assert not limits.slots


async def test_a_call_that_nothing_limits_goes_the_shortest_way() -> None:
    """What is not used costs nothing: there is no wrapper."""
    limits = limits_of()
    stage, call, result = stage_of(limits, CallOptions()), call_of(meta=Body(b'{"progressToken":1}')), Body()

    async def deliver(call: Call) -> Body:
        return result

    awaitable = deliver(call)
    assert stage(call, lambda call: awaitable) is awaitable
    assert await awaitable is result
    assert limits.stage(None, CallOptions(max_concurrent=1)) is None


# -- refusals


async def test_a_full_queue_refuses_and_says_what_is_full() -> None:
    limits, server, ann = limits_of(max_queued=1, max_per_client=1, batch=1), Server(), Caller()
    cases = {
        "Tool 'up/echo' (`max_concurrent`)": (stage_of(limits, CallOptions(max_concurrent=1)), Caller, None),
        "Server 'up' for changes of one client (`side_effects = \"serial\"`)": (
            stage_of(limits_of(max_queued=1), SERIAL),
            lambda: ann,
            None,
        ),
        "This client (`calls.max_per_client`)": (stage_of(limits, CallOptions()), lambda: ann, None),
        "This turn (`calls.batch`)": (stage_of(limits, CallOptions()), lambda: ann, turn("1")),
    }
    for what, (stage, caller, meta) in cases.items():
        tasks = [begin(stage, server, call_of(caller=caller(), meta=meta)) for _ in range(2)]
        await settled()
        with anyio.fail_after(30), pytest.raises(Overloaded) as refused:
            await begin(stage, server, call_of(caller=caller(), meta=meta))
        assert str(refused.value) == f"{what} is busy: 1 call runs and 1 wait, more are not taken"
        assert "Try again when earlier calls have finished" in refused.value.full_message()
        await finish(server, *tasks)


async def test_a_call_that_finds_no_place_by_its_deadline_is_refused_unsent() -> None:
    limits, server = limits_of(), Server()
    stage = stage_of(limits, CallOptions(max_concurrent=1))
    running = begin(stage, server, call_of())
    await settled()
    with standing_time() as go_on:
        late = call_of(deadline=asyncio.get_running_loop().time() + 0.01)
        over = call_of(deadline=0.001)
        for call, waited in ((late, "0.01"), (over, "0")):
            refused = begin(stage, server, call)
            await settled()
            go_on(0.02)
            with pytest.raises(Overloaded, match=f"was busy for {waited}.* with another call"):
                await refused
    assert late.facts is not None
    assert late.facts["waited"] > 0  # type: ignore[operator]
    await finish(server, running)
    assert len(server.began) == 1


async def test_without_a_deadline_a_call_waits_as_long_as_it_might_take() -> None:
    limits, server = limits_of(patience=0.01), Server()
    stage = stage_of(limits, SERIAL)
    running = begin(stage, server, call_of())
    await settled()
    with anyio.fail_after(30), pytest.raises(Overloaded, match=r"was busy for 0\.01 s"):
        await begin(stage, server, call_of())
    await finish(server, running)


async def test_who_waited_tells_observers_how_long() -> None:
    limits, server = limits_of(), Server()
    stage = stage_of(limits, CallOptions(max_concurrent=1))
    first, second = call_of(), call_of()
    with standing_time() as go_on:
        tasks = [begin(stage, server, first), begin(stage, server, second)]
        await settled()
        go_on(0.005)
        server.end(first)
        await settled()
    assert server.running == [second]
    await finish(server, *tasks)
    assert first.facts is None
    assert second.facts == {"waited": pytest.approx(0.005)}


def test_the_audit_log_has_the_wait_in_milliseconds() -> None:
    call = call_of()
    for seconds in (4.087000000007218, 0.0020000001):
        call.waited(seconds)
    assert repr(call.facts) == "{'waited': 4.089}"


# -- every way out


async def test_a_place_is_free_again_however_a_call_ends() -> None:
    limits = limits_of(max_per_client=1, batch=1)
    stage = stage_of(limits, CallOptions(is_serial=True, max_concurrent=1))

    async def fails(call: Call) -> Body:
        raise ValueError

    def refuses(call: Call) -> Any:
        raise KeyError

    for deliver, error in ((fails, ValueError), (refuses, KeyError)):
        with pytest.raises(error):
            await stage(call_of(meta=turn("1")), deliver)
    server = Server()
    running, waiting = (begin(stage, server, call_of(meta=turn("1"))) for _ in range(2))
    await settled()
    waiting.cancel()
    running.cancel()
    await asyncio.wait([running, waiting])
    assert not limits.slots
    assert not limits.slots.held


@pytest.mark.parametrize("seed", range(60))
async def test_however_calls_come_go_and_are_cancelled_no_limit_is_broken_and_no_place_lost(seed: int) -> None:
    """Random interleavings: also a cancel in the very turn in which a place is handed over."""
    chance = random.Random(seed)
    limits, server = limits_of(max_per_client=3, batch=2, max_queued=chance.choice([1, 3, 50])), Server()
    stages = {
        "a/read": stage_of(limits, CallOptions(effect="read"), "a/read"),
        "a/few": stage_of(limits, CallOptions(max_concurrent=2), "a/few"),
        "a/write": stage_of(limits, SERIAL, "a/write"),
        "a/both": stage_of(limits, CallOptions(is_serial=True, max_concurrent=2), "a/both"),
    }
    callers, kinds, turns = [Caller() for _ in range(3)], dict[Call, str](), dict[Call, str]()
    tasks: dict[Call, asyncio.Task[Body]] = {}

    def check() -> None:
        running = server.running
        assert max(Counter(call.caller for call in running).values(), default=0) <= 3
        changes = Counter(call.caller for call in running if kinds[call] in ("a/write", "a/both"))
        assert max(changes.values(), default=0) <= 1
        assert all(sum(kinds[call] == kind for call in running) <= 2 for kind in ("a/few", "a/both"))
        named = Counter((call.caller, turns[call]) for call in running if turns[call])
        assert max(named.values(), default=0) <= 2

    for _ in range(150):
        action = chance.random()
        if action < 0.45:
            name, kind = chance.choice(["", "", "t1", "t2"]), chance.choice(list(stages))
            call = call_of(caller=chance.choice(callers), meta=turn(name) if name else None)
            kinds[call], turns[call] = kind, name
            tasks[call] = begin(stages[kind], server, call)
        elif action < 0.75 and server.running:
            server.end(chance.choice(server.running))
        elif tasks:
            tasks[chance.choice(list(tasks))].cancel()
        for _ in range(chance.choice([0, 0, 1, 1, 2, 5])):
            await asyncio.sleep(0)
        check()
    with anyio.fail_after(10):
        while not all(task.done() for task in tasks.values()):
            for call in server.running:
                server.end(call)
            await asyncio.sleep(0)
            check()
    for task in tasks.values():
        assert task.cancelled() or task.exception() is None or isinstance(task.exception(), Overloaded)
    assert not limits.slots
    assert not limits.slots.held


# -- calls that belong to calls


async def test_a_call_made_on_behalf_of_another_uses_the_slots_which_that_one_holds() -> None:
    """Else a client that may run one call would wait for itself."""
    limits = limits_of(max_per_client=1, batch=1)
    stage = stage_of(limits, CallOptions(is_serial=True, max_concurrent=1))
    ann, server = Caller(), Server()

    async def calls_the_same(call: Call) -> Body:
        inner = call_of(caller=ann, meta=turn("1"), within=call)
        innermost = call_of(caller=ann, meta=turn("1"), within=inner)

        async def again(call: Call) -> Body:
            return await stage(innermost, deliver)

        return await stage(inner, again)

    async def deliver(call: Call) -> Body:
        return Body(b'{"at":"last"}')

    with anyio.fail_after(30):
        result = await stage(call_of(caller=ann, meta=turn("1")), calls_the_same)
    assert result.value() == {"at": "last"}
    assert not limits.slots
    stranger = begin(stage, server, call_of(caller=ann))
    await settled()
    await finish(server, stranger)


async def test_a_call_that_asks_its_client_lends_out_its_slots() -> None:
    """The answer may need them: a model that is asked for text may call tools for it."""
    limits = limits_of(max_per_client=1)
    stage = stage_of(limits, SERIAL)
    ann, asked, server = Caller(), Someone(form=True), Server()
    question = Question("up", ELICIT, Raw(b'{"message":"Sure?","requestedSchema":{}}'))
    after = asyncio.Event()

    async def asks(call: Call) -> Body:
        assert call.client is not asked
        assert call.client.capabilities is asked.capabilities
        assert call.client.owner is asked
        answer = await call.client.ask(question)
        await after.wait()
        return Body(answer)

    async def run() -> Body:
        return await stage(asking, asks)

    asking = call_of(caller=ann, client=asked)
    running = asyncio.ensure_future(run())
    await settled()
    assert asked.asked == [question]
    meanwhile = begin(stage, server, call_of(caller=ann))
    await settled()
    assert len(server.running) == 1
    asked.answer.set_result({"action": "accept"})
    await settled()
    third = begin(stage, server, call_of(caller=ann))
    await settled()
    assert len(server.running) == 1  # the one that asked has gone on, and counts again
    server.end(server.running[0])
    await asyncio.wait([meanwhile])
    await settled()
    assert not server.running
    after.set()
    with anyio.fail_after(30):
        assert (await running).value() == {"action": "accept"}
    assert asking.client is asked
    await finish(server, third)
    assert not limits.slots
