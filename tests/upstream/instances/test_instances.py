"""Several clients and several instances of one server: who waits for whom, and that no question goes astray."""

import asyncio
import json
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.core.model import Call
from mcpbridge.pipeline.deliver import Deliver
from mcpbridge.protocol.body import Body
from mcpbridge.upstream.instances import chooser
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.supervisor import Upstream
from support.upstreams.scripted_upstream import (
    LEGACY_SERVER,
    MODERN_SERVER,
    SILENCE,
    Line,
    ScriptedTransport,
    Someone,
    call_of,
    pool_of,
)

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chooser, "FREE_SECONDS", 0.01)


def silent(**more: Any) -> ScriptedTransport:
    """A legacy server whose calls end when a test says so."""
    return ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE, **more})


async def steps() -> None:
    """Let everything happen that can at once."""
    for _ in range(20):
        await asyncio.sleep(0)


def begin(pool: Pool, client: Someone, **more: Any) -> asyncio.Task[Body]:
    """A call of this client, to whichever instance is right."""
    return asyncio.ensure_future(Deliver(pool)(call_of(client=client, **more)))


def finish(line: Line) -> None:
    """Answer every call on this line."""
    for asked in line.asked("tools/call"):
        line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})


def ask(line: Line, id_: str) -> None:
    line.gives({"jsonrpc": "2.0", "id": id_, "method": "elicitation/create", "params": FORM})


async def end(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# -- whose it is


async def test_a_project_of_two_principals_is_two() -> None:
    """The directory is what a client says it is; who it is was authenticated."""
    pool = pool_of({"up": silent(**{"tools/call": LEGACY_SERVER["tools/call"]})}, up={"share": "project"})
    alice, bob, again = (Someone(project="file:///same", form=True) for _ in range(3))
    alice.principal, bob.principal, again.principal = "alice", "bob", "alice"
    with anyio.fail_after(10):
        async with pool.running():
            base = pool.upstreams["up"]
            found = [await pool.serving(base, someone) for someone in (alice, bob, again)]
            assert found[0] is found[2] is not found[1]
            assert base not in found


@pytest.mark.parametrize("share", ["project", "session"])
async def test_clients_that_share_a_project_or_a_name_are_asked_one_at_a_time(share: str) -> None:
    """A question names no call, so while one's call runs the other's waits."""
    transport = silent()
    pool = pool_of({"up": transport}, up={"share": share})
    first, second = (Someone(project="file:///same", home="principal x", form=True) for _ in range(2))
    with anyio.fail_after(10):
        async with pool.running():
            calls = [begin(pool, first)]
            await transport.hears("tools/call")
            line = next(line for line in transport.lines if line.asked("tools/call"))
            calls.append(begin(pool, second))
            await steps()
            assert len(transport.asked("tools/call")) == 1
            ask(line, "of the first")
            while not first.asked:
                await asyncio.sleep(0)
            first.answer.set_result({"action": "accept"})
            await transport.answer("of the first")
            finish(line)
            await transport.hears("tools/call", times=2)
            ask(line, "of the second")
            while not second.asked:
                await asyncio.sleep(0)
            assert len(first.asked) == 1
            await end(*calls)


# -- who waits for whom


async def test_who_waits_for_a_turn_holds_no_slot_that_the_one_who_has_it_needs() -> None:
    """Sampling that uses the same server: its call must not wait for those that wait for it."""
    transport = silent()
    pool = pool_of({"up": transport}, up={"max_concurrent": 2})
    first, second = Someone(form=True), Someone(form=True)
    with anyio.fail_after(10):
        async with pool.running():
            base = await pool.serving(pool.upstreams["up"], first)
            calls = [asyncio.ensure_future(base.request(call_of(client=first)))]
            await transport.hears("tools/call")
            calls += [asyncio.ensure_future(base.request(call_of(client=second))) for _ in range(3)]
            await steps()
            ask(transport.line, "q")
            while not first.asked:
                await asyncio.sleep(0)
            calls.append(asyncio.ensure_future(base.request(call_of(client=first))))
            await transport.hears("tools/call", times=2)
            await end(*calls)


async def test_a_wait_for_the_end_of_a_task_takes_no_slot_from_other_calls() -> None:
    """`tasks/result` is answered when the task has ended (2025-11-25, retrieving task results)."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tasks/result": SILENCE})
    pool = pool_of({"up": transport}, up={"max_concurrent": 1, "max_queued": 0})
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            base = pool.upstreams["up"]
            waits = [
                asyncio.ensure_future(base.request(Call("tasks/result", "up", f"t{n}", Body(b'{"taskId":"t"}'))))
                for n in range(3)
            ]
            await transport.hears("tasks/result", times=3)
            assert (await base.request(call_of())).value()["content"]
            await end(*waits)
            assert (await base.request(call_of())).value()["content"]


async def test_at_the_limit_an_instance_that_is_there_and_free_is_used(impatient: None) -> None:
    transport = silent()
    pool = pool_of({"up": transport}, up={"max_instances": 1, "queue_timeout": 5})
    first, second = Someone(form=True), Someone(form=True)
    with anyio.fail_after(10):
        async with pool.running():
            held = begin(pool, first)
            await transport.hears("tools/call")
            for times in (2, 3):
                call = begin(pool, second)
                await transport.hears("tools/call", times=times)
                [other] = [line for line in transport.lines[1:] if line.asked("tools/call")][-1:]
                finish(other)
                await call
            assert not held.done()
            await end(held)


async def test_a_call_that_finds_every_session_asking_waits_until_one_may_give_way(impatient: None) -> None:
    """Whoever is asked may be gone for good, which shows only after a while: trying once is not enough."""
    transport = silent()
    pool = pool_of({"up": transport}, up={"max_instances": 1, "queue_timeout": 60})
    people = [Someone(form=True) for _ in range(3)]
    tried = 0

    def give_way(server: str) -> bool:
        nonlocal tried
        tried += 1
        if tried < 5:
            return False
        finish(next(line for line in reversed(transport.lines) if line.asked("tools/call")))
        return True

    with anyio.fail_after(30):
        async with pool.running():
            held: list[asyncio.Task[Body]] = []
            for times, someone in enumerate(people[:2], 1):
                held.append(begin(pool, someone))
                await transport.hears("tools/call", times=times)
                ask(next(line for line in reversed(transport.lines) if line.asked("tools/call")), "q")
                while not someone.asked:
                    await asyncio.sleep(0)
            people[2].give_way = give_way
            call = begin(pool, people[2])
            await transport.hears("tools/call", times=3)
            assert tried == 5
            await end(call, *held)


async def test_of_two_calls_that_wait_for_a_session_the_second_is_not_left_behind_the_first(impatient: None) -> None:
    """Both see that a session is free: the later one must not wait for the person that the other one asks."""
    transport = silent()
    pool = pool_of({"up": transport}, up={"max_instances": 1, "queue_timeout": 60})
    people = [Someone(form=True) for _ in range(4)]

    def lines() -> list[Line]:
        return [line for line in transport.lines if line.asked("tools/call")]

    async def is_asked(someone: Someone, line: Line) -> None:
        ask(line, "q")
        while not someone.asked:
            await asyncio.sleep(0)

    with anyio.fail_after(30):
        async with pool.running():
            calls: list[asyncio.Task[Body]] = []
            for times, someone in enumerate(people[:2], 1):
                calls.append(begin(pool, someone))
                await transport.hears("tools/call", times=times)
                await is_asked(someone, lines()[-1])
            waiting = [begin(pool, someone) for someone in people[2:]]
            await anyio.sleep(0.05)  # both are among those that look again
            first = lines()[0]
            finish(first)
            await calls[0]
            await transport.hears("tools/call", times=3)
            third = first if len(first.asked("tools/call")) == 2 else lines()[-1]
            ask(third, "q3")
            while not (people[2].asked or people[3].asked):
                await asyncio.sleep(0)
            finish(lines()[1])
            await calls[1]
            try:
                await transport.hears("tools/call", times=4)
            finally:
                await end(*waiting)


async def test_a_call_waits_for_a_server_that_starts_no_longer_than_its_own_time() -> None:
    """Which session is the right one shows only once the server is up: that wait is the call's, too."""
    pool = pool_of({"up": ScriptedTransport({"initialize": SILENCE})}, up={"call_timeout": 0.2, "queue_timeout": 600})
    with anyio.fail_after(30):
        async with pool.running():
            with pytest.raises(UpstreamUnavailable, match=r"the call waited 0\.2"):
                await begin(pool, Someone(form=True))


async def test_at_the_limit_a_gap_among_the_instances_hides_none(impatient: None) -> None:
    """The second further instance is still found when the first has ended."""
    transport = silent()
    pool = pool_of({"up": transport}, up={"max_instances": 2})
    people = [Someone(form=True) for _ in range(3)]
    with anyio.fail_after(10):
        async with pool.running():
            base = pool.upstreams["up"]
            held: list[asyncio.Task[Body]] = []
            instances: list[Upstream] = []
            for number, someone in enumerate(people, 1):
                instances.append(await pool.serving(base, someone))
                held.append(asyncio.ensure_future(instances[-1].request(call_of(client=someone))))
                await transport.hears("tools/call", times=number)
            assert len(set(instances)) == 3
            further = pool._on_demand  # pyright: ignore[reportPrivateUsage] - as one that was idle for too long
            next(instance for instance in further if instance.upstream is instances[1]).scope.cancel()
            while pool.instances("up") > 2:
                await asyncio.sleep(0)
            pool.upstreams["up"].settings = base.settings.model_copy(update={"max_instances": 1})
            last = Someone(form=True)
            held[2].cancel()
            await asyncio.wait(held[2:])
            assert await pool.serving(base, people[2]) is instances[2]
            assert await pool.serving(base, last) is base  # that one may still be at what was given up
            await end(*held)


# -- what is in use


async def test_an_instance_does_not_end_while_a_person_answers_between_two_rounds() -> None:
    """No call runs there meanwhile; its state would be lost."""

    def rounds(params: Any) -> Any:
        if "inputResponses" in params:
            return {"resultType": "complete", "content": [{"type": "text", "text": params["requestState"]}]}
        asked = {"q": {"method": "elicitation/create", "params": FORM}}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": "kept here"}

    transport = ScriptedTransport(MODERN_SERVER, **{"tools/call": rounds})
    pool = pool_of({"up": transport}, up={"share": "session", "instance_idle": 0.02})
    someone = Someone(form=True)
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            call = begin(pool, someone)
            while not someone.asked:
                await asyncio.sleep(0)
            [instance] = [one for one in pool.everyone() if not one.is_primary]
            ended = asyncio.ensure_future(instance.connection.stepped())
            await asyncio.wait([ended], timeout=0.1)
            assert not ended.done()
            someone.answer.set_result({"action": "accept", "content": {}})
            assert (await call).value()["content"][0]["text"] == "kept here"
            await ended
            assert instance.status.state == "stopped"


async def test_an_instance_does_not_end_while_a_client_is_expected_back_with_an_answer() -> None:
    """A modern client is asked by the answer to its call, and makes another one of it."""
    asked = {"q": {"method": "elicitation/create", "params": FORM}}
    result = {"resultType": "input_required", "inputRequests": asked, "requestState": "kept here"}
    transport = ScriptedTransport(MODERN_SERVER, **{"tools/call": result})
    pool = pool_of({"up": transport}, up={"share": "session", "instance_idle": 0.02})
    someone = Someone(form=True)
    someone.relays = True  # pyright: ignore[reportAttributeAccessIssue] - as a modern one does
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            deliver = Deliver(pool, answer_seconds=2)
            assert (await deliver(call_of(client=someone))).value() == result
            [instance] = [one for one in pool.everyone() if not one.is_primary]
            ended = asyncio.ensure_future(instance.connection.stepped())
            await asyncio.wait([ended], timeout=0.1)
            assert not ended.done()
            await ended
            assert instance.status.state == "stopped"


# -- strays


@pytest.mark.parametrize("kind", ["stdio", "streamable-http"])
async def test_a_late_question_of_a_call_that_was_given_up_is_put_to_nobody_else(kind: Any, impatient: None) -> None:
    """Over HTTP too: what comes on the session's own stream names no call."""
    transport = silent()
    transport.kind = kind
    pool = pool_of({"up": transport}, up={"max_instances": 1, "era": "legacy"})
    first, second = Someone(form=True), Someone(form=True)
    with anyio.fail_after(10):
        async with pool.running():
            base = await pool.serving(pool.upstreams["up"], first)
            given_up = asyncio.ensure_future(base.request(call_of(client=first)))
            await transport.hears("tools/call")
            await end(given_up)
            other = asyncio.ensure_future(base.request(call_of(client=second)))
            await transport.hears("tools/call", times=2)
            ask(transport.line, "late")
            assert (await transport.answer("late"))["error"]["code"] == -32600
            assert not second.asked
            again = asyncio.ensure_future(base.request(call_of(client=first)))
            await steps()
            await end(other, again)


async def test_a_late_question_is_not_put_to_who_has_a_task_there_either() -> None:
    transport = silent()
    pool = pool_of({"up": transport})
    first, second = Someone(form=True), Someone(form=True)
    with anyio.fail_after(10):
        async with pool.running():
            base = await pool.serving(pool.upstreams["up"], first)
            base.tasks.follow("t1", call_of(client=second))
            given_up = asyncio.ensure_future(base.request(call_of(client=first)))
            await transport.hears("tools/call")
            await end(given_up)
            ask(transport.line, "late")
            assert (await transport.answer("late"))["error"]["code"] == -32600
            assert not second.asked
            assert json.dumps(transport.line.heard).count('"late"') == 1
            base.tasks.leave("t1")
