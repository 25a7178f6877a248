"""Answers to calls that wait, where whoever answers is cancelled, or the store fails."""

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from mcpbridge.base.errors import StoreFailed
from mcpbridge.core.model import ApproveBy, Call
from mcpbridge.pipeline.approvals.decider import Decider
from mcpbridge.pipeline.approvals.grants import Grants
from mcpbridge.pipeline.approvals.pending import AlreadyDecided, MayNotDecide, PendingApprovals, UnknownApproval
from mcpbridge.pipeline.approvals.request import ApprovalEvent, ApprovalRequest, Verdict
from mcpbridge.pipeline.approvals.settings import ApprovalSettings
from mcpbridge.protocol.body import Body
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.storage.store import Entry

STEPS = 60
"""Steps of the loop, more than an answer takes on such a store."""


class SlowStore(MemoryStore):
    """Each operation takes a few steps of the loop before it has its effect, and after."""

    fails_to_put = ""
    """A kind of values that cannot be put."""

    async def put(self, kind: str, body: bytes | memoryview, **how: Any) -> str:
        await steps(2)
        if kind == self.fails_to_put:
            raise StoreFailed("the disk is full")
        handle = await super().put(kind, body, **how)
        await steps(2)
        return handle

    async def take(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        await steps(2)
        body = await super().take(kind, handle, principal=principal)
        await steps(2)
        return body


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class World:
    """A desk on such a store, and a request that can be answered at it."""

    def __init__(self, lasts: float = 0.0, store: SlowStore | None = None) -> None:
        self.store = store or SlowStore()
        self.grants = Grants(self.store, once_seconds=600, session_seconds=3600)
        self.events: list[ApprovalEvent] = []
        self.desk = PendingApprovals(ApprovalSettings(), self.store, self.grants, self.events.append)
        self.request = ApprovalRequest(
            id="request",
            server="up",
            tool="up/echo",
            client="client",
            principal="",
            session="session",
            arguments_json=b"{}",
            reason="because",
            binding="binding",
            at=time.time(),
            expires=time.time() + 60,
            lasts=lasts,
        )

    async def ids(self) -> list[str]:
        return [one.request.id for one in await self.desk.pending()]


def call_of_client() -> Call:
    return Call("tools/call", "up", "echo", Body(b'{"name":"echo","arguments":{}}'))


async def cancelled_after(work: Any, count: int) -> bool:
    """Whether cancelling after so many steps came before the end of the work."""
    task = asyncio.ensure_future(work)
    await steps(count)
    is_cancelled = task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return is_cancelled


@pytest.mark.parametrize("lasts", [0.0, 600.0])
async def test_an_approval_that_is_cancelled_is_given_or_its_request_is_still_there(lasts: float) -> None:
    """At whatever moment: nobody's yes gets lost, and no request without one."""
    given = left = 0
    was_cancelled = True
    for count in range(STEPS):
        world = World(lasts=lasts)
        await world.store.put("approval", encode(world.request), principal="", expires_in=600, handle="request")
        was_cancelled = await cancelled_after(world.desk.decide("request", "once", "me"), count)
        pending = await world.ids()
        grant = await world.grants.use(world.request)
        assert (grant is None) == (pending == ["request"])
        given, left = given + (grant is not None), left + (grant is None)
        assert [event.event for event in world.events] == (["granted"] if grant is not None else [])
    assert not was_cancelled, "the last one was not cancelled: there were steps enough"
    assert left, "the first ones were cancelled before they began"
    assert given > 1


async def test_a_call_that_waits_here_is_approved_though_its_approval_is_cancelled() -> None:
    for count in range(1, STEPS):
        world = World()
        call = asyncio.ensure_future(world.desk.ask(world.request, call_of_client()))
        async with asyncio.timeout(60):
            while not await world.ids():
                await asyncio.sleep(0)
        await cancelled_after(world.desk.decide("request", "once", "me"), count)
        async with asyncio.timeout(60):
            assert await call == Verdict("once", "me", is_noted=True)
        assert await world.ids() == []


async def test_a_yes_that_cannot_be_kept_leaves_the_request() -> None:
    world = World()
    gave_up = replace(world.request, expires=time.time() - 1)
    await world.store.put("approval", encode(gave_up), principal="", expires_in=600, handle="request")
    world.store.fails_to_put = "grant"
    with pytest.raises(StoreFailed):
        await world.desk.decide("request", "once", "me")
    assert await world.ids() == ["request"]
    world.store.fails_to_put = ""
    await world.desk.decide("request", "once", "me")
    assert await world.grants.use(world.request) is not None


class LosesAnswers(SlowStore):
    """A value is put, and nobody hears of it."""

    async def put(self, kind: str, body: bytes | memoryview, **how: Any) -> str:
        handle = await super().put(kind, body, **how)
        if kind == "grant":
            raise StoreFailed("the connection was lost")
        return handle


@pytest.mark.parametrize("is_used", [True, False])
async def test_a_yes_of_which_nobody_knows_whether_it_was_kept_counts_once(
    is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call waits at another bridge, and may use it at once; then nobody is asked once more."""
    monkeypatch.setattr("mcpbridge.pipeline.approvals.pending.LOOK", 0.001)
    world = World(store=LosesAnswers())
    elsewhere = other_desk(world)
    if is_used:
        call = asyncio.ensure_future(elsewhere.ask(world.request, call_of_client()))
        while not any(one.is_here for one in await elsewhere.pending()):
            await asyncio.sleep(0)
    else:
        await world.store.put("approval", encode(world.request), principal="", expires_in=600, handle="request")

    async def take_back(request: ApprovalRequest, scope: Any) -> bool:
        if is_used:
            async with asyncio.timeout(60):
                verdict = await call
            assert verdict is not None
            assert verdict.granted == "once"
        return await grants.take_back(request, scope)

    grants = Grants(world.store, once_seconds=600, session_seconds=3600)
    monkeypatch.setattr(world.grants, "take_back", take_back)
    with pytest.raises(StoreFailed):
        await world.desk.decide("request", "once", "me")
    assert await world.ids() == ([] if is_used else ["request"])
    assert await world.grants.use(world.request) is None


async def test_a_request_that_was_asked_in_another_way_can_be_answered_later() -> None:
    """Such as by a form of the client, in which nobody said anything."""
    world = World()
    assert "mcpbridge approve request" in await world.desk.keep(world.request)
    assert await world.ids() == ["request"]
    again = replace(world.request, asked=2)
    assert "mcpbridge approve request" in await world.desk.keep(again)
    await world.desk.decide("request", "once", "me")
    assert await world.grants.use(world.request) is not None


class SlowToLook(SlowStore):
    """Looking at what is there takes time as well, as on a disk."""

    async def entries(self, kind: str, *, principal: str | None) -> list[Entry]:
        found = await super().entries(kind, principal=principal)
        await steps(2)
        return found


async def test_nobody_approves_a_call_of_their_own_in_the_moment_in_which_it_gives_up() -> None:
    """It waits no more and is not kept yet: whoever asks for it then is judged all the same."""
    for count in range(STEPS):
        world = World(store=SlowToLook())
        request = replace(world.request, principal="ann", approve_by=ApproveBy(roles=("leads",)))
        call = asyncio.ensure_future(world.desk.ask(request, call_of_client()))
        async with asyncio.timeout(60):
            while not await world.ids():
                await asyncio.sleep(0)

        async def gives_up(call: asyncio.Future[Verdict | None], world: World, request: ApprovalRequest) -> None:
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call
            await world.desk.keep(request)

        giving_up = asyncio.ensure_future(gives_up(call, world, request))
        await steps(count)
        with pytest.raises((UnknownApproval, MayNotDecide)):
            await world.desk.decide("request", "once", "page:ann", decider=Decider("ann"))
        await giving_up
        assert await world.grants.use(request) is None
        assert await world.ids() == ["request"]


class SlowToDrop(SlowToLook):
    """Taking back takes time, too."""

    is_away = False
    """Nothing can be read."""

    async def get(self, kind: str, handle: str, **how: Any) -> bytes | None:
        if self.is_away:
            raise StoreFailed("it does not answer")
        return await super().get(kind, handle, **how)

    async def drop(self, kind: str, handle: str, *, principal: str) -> bool:
        await steps(2)
        was_there = await super().drop(kind, handle, principal=principal)
        await steps(2)
        return was_there


async def until_asked(world: World) -> None:
    async with asyncio.timeout(60):
        while not any(one.is_here for one in await world.desk.pending()):
            await asyncio.sleep(0)


def other_desk(world: World) -> PendingApprovals:
    """Of another bridge that shares the store."""
    grants = Grants(world.store, once_seconds=600, session_seconds=3600)
    return PendingApprovals(ApprovalSettings(), world.store, grants, world.events.append)


async def is_heard(desk: PendingApprovals, decision: Any) -> bool:
    try:
        await desk.decide("request", decision, "somebody")
    except (UnknownApproval, AlreadyDecided):
        return False
    return True


@pytest.mark.parametrize("is_yes", [True, False])
async def test_what_another_bridge_answers_as_its_call_gives_up_is_answered_once(
    is_yes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that somebody took does not come back: it could be approved once more, and the call pass twice."""
    moments = set[tuple[bool, bool]]()
    for count in range(STEPS):
        world = World(store=SlowToDrop())
        elsewhere = other_desk(world)
        call = asyncio.ensure_future(world.desk.ask(world.request, call_of_client()))
        await until_asked(world)

        async def gives_up(call: asyncio.Future[Verdict | None], world: World) -> str:
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call
            return await world.desk.keep(world.request)

        answering = asyncio.ensure_future(is_heard(elsewhere, "once" if is_yes else None))
        await steps(count)
        with monkeypatch.context() as soon:  # the call itself has begun to wait for its next look
            soon.setattr("mcpbridge.pipeline.approvals.pending.LOOK", 0.01)
            advice = await gives_up(call, world)
        is_first = await answering
        is_second = await is_heard(world.desk, "once")
        moments.add((is_first, is_second))
        assert is_first != is_second, count
        assert await world.ids() == []
        if is_first:
            assert advice == ("It was approved in the last moment: the same call passes now." if is_yes else "")
        assert (await world.grants.use(world.request) is not None) == (is_second or is_yes)
        assert await world.grants.use(world.request) is None
    assert moments == {(True, False), (False, True)}, "it was answered before, and after, its call gave up"


async def test_what_another_bridge_answers_as_its_call_is_made_again_lets_it_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcpbridge.pipeline.approvals.pending.LOOK", 0.01)
    was_in_time = set[bool]()
    for count in range(STEPS):
        world = World(store=SlowToDrop())
        late = replace(world.request, expires=time.time() - 1)
        await world.store.put("approval", encode(late), principal="", expires_in=600, handle="request")
        elsewhere = other_desk(world)
        answering = asyncio.ensure_future(is_heard(elsewhere, "once"))
        await steps(count)
        call = asyncio.ensure_future(world.desk.ask(replace(world.request, asked=2), call_of_client()))
        if was_first := await answering:
            async with asyncio.timeout(60):
                verdict = await call
            assert verdict is not None
            assert verdict.granted == "once"
        else:
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call
        was_in_time.add(was_first)
        assert await world.grants.use(world.request) is None
        assert await world.ids() == []
    assert was_in_time == {True, False}


async def test_a_call_waits_on_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can answer it meanwhile, here or elsewhere; that is no "no"."""
    monkeypatch.setattr("mcpbridge.pipeline.approvals.pending.LOOK", 0.01)
    store = SlowToDrop()
    world = World(store=store)
    looks = list[str]()
    call = asyncio.ensure_future(world.desk.ask(world.request, call_of_client()))
    await until_asked(world)
    found = SlowToDrop.get

    async def get(self: SlowToDrop, kind: str, handle: str, **how: Any) -> bytes | None:
        looks.append(handle)
        return await found(self, kind, handle, **how)

    monkeypatch.setattr(SlowToDrop, "get", get)
    store.is_away = True
    async with asyncio.timeout(60):
        while len(looks) < 5:
            await asyncio.sleep(0.001)
    assert not call.done()
    store.is_away = False
    await world.desk.decide("request", "once", "me")
    async with asyncio.timeout(60):
        assert await call == Verdict("once", "me", is_noted=True)


async def test_a_no_that_cannot_be_kept_for_the_session_is_a_no_to_this_call() -> None:
    world = World()
    call = asyncio.ensure_future(world.desk.ask(world.request, call_of_client()))
    await until_asked(world)
    world.store.fails_to_put = "grant"
    with pytest.raises(StoreFailed):
        await world.desk.decide("request", None, "me", in_session=True)
    async with asyncio.timeout(60):
        assert await call == Verdict("", "me")


async def test_a_request_can_be_answered_later_in_whichever_moment_its_call_gives_up() -> None:
    """Also while it is written down: on a busy disk that may take longer than people have."""
    was_cancelled = True
    for count in range(1, STEPS):
        world = World(store=SlowToDrop())
        was_cancelled = await cancelled_after(world.desk.ask(world.request, call_of_client()), count)
        assert was_cancelled
        assert "mcpbridge approve" in await world.desk.keep(world.request)
        assert await world.ids() == ["request"]
