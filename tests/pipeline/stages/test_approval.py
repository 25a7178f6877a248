"""The stage that lets nothing pass without a yes, and what a yes is bound to."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.base.errors import (
    ApprovalRefused,
    ApprovalUnavailable,
    ArgumentsRefused,
    Overloaded,
    StoreFailed,
    ValueTooLarge,
)
from mcpbridge.core.call_options import NO_HINTS, CallOptions
from mcpbridge.core.context import Session
from mcpbridge.core.identity import Identity
from mcpbridge.core.model import ApproveBy, Call
from mcpbridge.pipeline.approvals.grants import Grants
from mcpbridge.pipeline.approvals.pending import AlreadyDecided, PendingApprovals, UnknownApproval, _Decided
from mcpbridge.pipeline.approvals.request import (
    PAUSE,
    PAUSED_SECONDS,
    ApprovalEvent,
    ApprovalRequest,
    NotWaited,
    Verdict,
)
from mcpbridge.pipeline.approvals.settings import ApprovalSettings
from mcpbridge.pipeline.stages.approval import Approval, Approver
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.storage.memory_store import MemoryStore
from support.virtual_time import pass_time

NO = Verdict("", "someone")
ONCE = Verdict("once", "someone")
SESSION = Verdict("session", "someone")


@dataclass(frozen=True)
class Tool:
    """As much of a tool as the stage looks at."""

    id: str = "up/echo"
    definition: bytes = b'{"name":"echo"}'
    server: str = "up"
    name: str = "echo"
    wire: str = "up__echo"
    hints: Any = NO_HINTS
    headers: Any = field(default_factory=dict[Any, Any])


@dataclass
class Caller:
    """Who calls."""

    principal: str = ""
    name: str = "client"
    version: str = "2025-11-25"
    session: Session = field(default_factory=Session)
    identity: Identity | None = None


class Says:
    """An approver that says what it is told to, each once."""

    name = "someone"

    def __init__(self, *verdicts: Verdict | None, kept: str = "") -> None:
        self.verdicts, self.kept = list(verdicts), kept
        self.asked: list[ApprovalRequest] = []

    def reaches(self, call: Call) -> bool:
        return self.verdicts != []

    def may_decide(self, request: ApprovalRequest) -> bool:
        return request.approve_by is None

    async def ask(self, request: ApprovalRequest, call: Call) -> Verdict | None:
        self.asked.append(request)
        return self.verdicts.pop(0)

    async def keep(self, request: ApprovalRequest) -> str:
        return self.kept


class Never(Says):
    """An approver that nobody answers."""

    def reaches(self, call: Call) -> bool:
        return True

    async def ask(self, request: ApprovalRequest, call: Call) -> Verdict | None:
        self.asked.append(request)
        return await asyncio.get_running_loop().create_future()


class World:
    """The stage, and who stands around it."""

    def __init__(self, *approvers: Approver, seconds: float = 60, clock: Callable[[], float] | None = None) -> None:
        self.store = MemoryStore(clock=clock) if clock else MemoryStore()
        self.grants = Grants(self.store, once_seconds=600, session_seconds=3600)
        self.events: list[ApprovalEvent] = []
        self.version = "v1"
        self.seconds = seconds
        self.approvers: Sequence[Approver] = approvers
        self.sent: list[Call] = []
        self.session = Session()
        self.as_before: Any = nullcontext

    async def calls(self, arguments: Any = None, *, tool: Any = None, caller: Any = None, **more: Any) -> Body:
        concern = Approval(
            self.approvers,
            self.grants,
            seconds=self.seconds,
            policy=lambda: self.version,
            audit=self.events.append,
            as_before=self.as_before,
        )
        tool = tool or Tool()
        stage = concern.stage(tool, CallOptions())
        assert stage is not None
        raw = arguments if isinstance(arguments, bytes) else encode(arguments or {})
        call = Call("tools/call", "up", "echo", Body(encode({"name": "echo", "arguments": Raw(raw)})), **more)
        call.tool, call.caller = tool, caller or Caller(session=self.session)
        if "approval" not in more:
            call.approval = "because"

        async def deliver(call: Call) -> Body:
            self.sent.append(call)
            return Body(b"{}")

        return await stage(call, deliver)

    @property
    def steps(self) -> list[str]:
        return [event.event for event in self.events]


async def test_a_call_that_needs_nobody_passes_unasked() -> None:
    world = World(Says())
    await world.calls(approval="")
    assert len(world.sent) == 1
    assert world.events == []


async def test_a_later_round_needs_no_other_yes_for_the_same_call() -> None:
    """A call that asks back comes again. What was agreed to stands in its sealed state, and is all that passes."""
    world = World(Says(ONCE))
    await world.calls({"a": 1})
    agreed = world.sent[0].agreed
    await world.calls({"a": 1}, continues=True, agreed=agreed)
    with pytest.raises(ApprovalUnavailable):
        await world.calls({"a": 2}, continues=True, agreed=agreed)
    with pytest.raises(ApprovalUnavailable):
        await world.calls({"a": 1}, continues=True)
    world.version = "v2"
    with pytest.raises(ApprovalUnavailable):
        await world.calls({"a": 1}, continues=True, agreed=agreed)
    assert len(world.sent) == 2


async def test_a_tool_that_never_needs_anybody_has_no_stage() -> None:
    world = World()
    needs = lambda tool, options: options.risk == "high"  # noqa: E731
    concern = Approval((), world.grants, seconds=1, policy=str, audit=world.events.append, needed=needs)
    assert concern.stage(Tool(), CallOptions()) is None
    assert concern.stage(Tool(), CallOptions(risk="high")) is not None


async def test_the_next_is_asked_where_one_cannot_be() -> None:
    first, second, third = Says(None), Says(ONCE), Says()
    world = World(first, second, third)
    await world.calls({"a": 1})
    assert [len(one.asked) for one in (first, second, third)] == [1, 1, 0]
    request = second.asked[0]
    assert (request.tool, request.arguments, request.reason, request.client) == (
        "up/echo",
        {"a": 1},
        "because",
        "client",
    )
    assert [(event.event, event.by) for event in world.events] == [
        ("asked", "someone"),
        ("asked", "someone"),
        ("granted", "someone"),
    ]
    assert world.sent[0].facts == {"approval": "once by someone"}


@pytest.mark.parametrize("approvers", [(), (Says(), Says())])
async def test_nobody_to_ask_is_an_error_and_never_a_yes(approvers: tuple[Approver, ...]) -> None:
    """Issue 4: no approver configured means an error, never a pass."""
    world = World(*approvers)
    with pytest.raises(ApprovalUnavailable, match=r"up/echo \(because\)"):
        await world.calls()
    assert world.sent == []
    assert world.steps == ["unavailable"]


async def test_silence_is_a_no_that_says_what_can_still_be_done() -> None:
    world = World(Never(kept="Run this."), Never(), seconds=0.01)
    with pytest.raises(ApprovalRefused, match="Nobody answered within 10ms") as refused:
        await world.calls()
    assert refused.value.full_message().endswith("Nothing was sent. Run this.")
    assert len(refused.value.facts["mcpbridge/approval"]) == 8  # type: ignore[arg-type]
    assert world.steps == ["asked", "expired"]
    assert world.sent == []


async def test_a_rule_that_names_approvers_may_give_them_a_time_of_their_own() -> None:
    """Issue 23: rules name who may approve, where, and until when."""
    never = Never()
    never.may_decide = lambda request: True
    world = World(never, seconds=3600)
    with pytest.raises(ApprovalRefused, match="Nobody answered within 10ms"):
        await world.calls(approve_by=ApproveBy(roles=("leads",), seconds=0.01))
    [asked] = never.asked
    assert asked.expires < time.time() + 60
    assert world.sent == []


async def test_a_call_that_is_cancelled_is_recorded_as_such() -> None:
    world = World(never := Never())
    call = asyncio.ensure_future(world.calls())
    while not never.asked:
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    assert world.steps == ["asked", "cancelled"]


CHANGES: dict[str, dict[str, Any]] = {
    "other arguments": {"arguments": {"a": 2, "b": [1, 2]}},
    "another order in a list": {"arguments": {"a": 1, "b": [2, 1]}},
    "another spelling of a number": {"arguments": b'{"a":1.0,"b":[1,2]}'},
    "one argument more": {"arguments": {"a": 1, "b": [1, 2], "c": None}},
    "another tool": {"tool": Tool(id="up/other")},
    "another definition": {"tool": Tool(definition=b'{"name":"echo","description":"harmless"}')},
    "another principal": {"caller": Caller(principal="mallory")},
}


@pytest.mark.parametrize("verdict", [ONCE, SESSION])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_grant_is_for_exactly_what_was_asked(change: str, verdict: Verdict) -> None:
    says = Says(NO, SESSION)
    world = World(says)
    arguments = {"a": 1, "b": [1, 2]}
    await give(world, verdict, arguments)
    changed = {"arguments": arguments, **CHANGES[change]}
    if "caller" in changed:
        changed["caller"].session = world.session
    with pytest.raises(ApprovalRefused):
        await world.calls(**changed)
    await world.calls(b'{ "b" : [1, 2],\n "a": 1 }')
    assert len(says.asked) == 1
    assert world.steps[-1] == "used"


@pytest.mark.parametrize("verdict", [ONCE, SESSION])
async def test_another_policy_makes_grants_void(verdict: Verdict) -> None:
    world = World(Says(NO))
    await give(world, verdict, {})
    world.version = "v2"
    with pytest.raises(ApprovalRefused):
        await world.calls()


async def test_a_grant_for_one_call_is_used_once() -> None:
    world = World(Says(NO))
    await give(world, ONCE, {})
    await world.calls()
    assert world.events[-1].by == "someone"
    with pytest.raises(ApprovalRefused):
        await world.calls()
    assert len(world.sent) == 1


async def test_of_equal_calls_at_the_same_time_each_uses_a_grant_of_its_own() -> None:
    world = World(Says(NO, NO, NO, NO, NO))
    await give(world, ONCE, {}, times=2)
    results = await asyncio.gather(*(world.calls() for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(result, Body) for result in results) == 2


async def test_a_grant_for_a_session_is_for_that_one() -> None:
    world = World(Says(SESSION, NO))
    await world.calls()
    await world.calls()
    with pytest.raises(ApprovalRefused):
        await world.calls(caller=Caller(session=Session()))
    assert world.steps == ["asked", "granted", "used", "asked", "denied"]


@pytest.mark.parametrize(("verdict", "seconds"), [(ONCE, 600), (SESSION, 3600)])
async def test_a_grant_expires(verdict: Verdict, seconds: float) -> None:
    now = 1000.0
    world = World(Says(NO), clock=lambda: now)
    await give(world, verdict, {})
    now += seconds + 1
    with pytest.raises(ApprovalRefused):
        await world.calls()


async def give(world: World, verdict: Verdict, arguments: Any, times: int = 1) -> None:
    """Keep a yes for the call with these arguments, or several of different requests."""
    asked, world.approvers = world.approvers, [says := Says(NO)]
    with pytest.raises(ApprovalRefused):
        await world.calls(arguments)
    world.approvers = asked
    assert verdict.granted
    for number in range(times):
        await world.grants.put(replace(says.asked[0], id=f"request{number}"), verdict.granted, verdict.by)


# -- the desk, on a store that several bridges share


def desk_of(world: World, **settings: Any) -> PendingApprovals:
    desk = PendingApprovals(ApprovalSettings(**settings), world.store, world.grants, world.events.append)
    world.approvers = [desk]
    return desk


async def waiting(desk: PendingApprovals, count: int = 1) -> list[str]:
    async with asyncio.timeout(60):
        while len(found := [one.request.id for one in await desk.pending()]) < count:
            await asyncio.sleep(0)
    return found


async def test_only_so_many_calls_of_one_principal_wait() -> None:
    world = World()
    desk = desk_of(world, max_pending=2)
    calls = [asyncio.ensure_future(world.calls({"n": number})) for number in range(2)]
    await waiting(desk, 2)
    with pytest.raises(Overloaded, match="2 calls wait for approval already"):
        await world.calls({"n": 3})
    other = asyncio.ensure_future(world.calls(caller=Caller(principal="other")))
    for id_ in await waiting(desk, 3):
        await desk.decide(id_, "once", "me")
    await asyncio.gather(*calls, other)
    assert await desk.pending() == []
    assert len(await world.store.entries("approval", principal=None)) == 0


async def test_an_answer_through_another_bridge_reaches_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.pipeline.approvals.pending.LOOK", 0.01)
    world = World()
    here = desk_of(world)
    elsewhere = PendingApprovals(ApprovalSettings(), world.store, world.grants, world.events.append)
    for scope in ("once", "session", None):
        call = asyncio.ensure_future(world.calls({"for": scope}))
        await waiting(here)
        [pending] = await elsewhere.pending()
        assert pending.is_waiting
        assert not pending.is_here
        await elsewhere.decide(pending.request.id, scope, "them")  # type: ignore[arg-type]
        if scope is None:
            with pytest.raises(ApprovalRefused):
                await call
        else:
            await call
        assert await here.pending() == []
    assert [call.facts for call in world.sent] == [{"approval": "once by them"}, {"approval": "session by them"}]


async def test_what_gave_up_waiting_is_bounded_too() -> None:
    world = World(seconds=0.01)
    desk = desk_of(world, max_pending=3)
    for number in range(6):
        with pytest.raises(ApprovalRefused):
            await world.calls({"n": number})
    kept = await desk.pending()
    assert [pending.request.arguments["n"] for pending in kept] == [3, 4, 5]
    assert not any(pending.is_here for pending in kept)


async def test_an_answer_in_the_moment_of_giving_up_counts() -> None:
    """Who approved was told that it is done."""
    world = World(seconds=0.01)
    desk = desk_of(world)

    async def too_late(request: ApprovalRequest, *_: object) -> Verdict:
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            await desk.decide(request.id, "once", "someone")

    desk._answer = too_late  # type: ignore[method-assign]
    with pytest.raises(ApprovalRefused, match="Nobody answered") as refused:
        await world.calls()
    assert "approved by someone in the last moment" in refused.value.full_message()
    await world.calls()
    assert len(world.sent) == 1
    with pytest.raises(ApprovalRefused):
        await world.calls()


@pytest.mark.parametrize("scope", ["once", None])
@pytest.mark.parametrize("is_kept_first", [True, False])
async def test_an_answer_that_is_under_way_when_the_call_gives_up_counts_once(
    scope: Literal["once"] | None, is_kept_first: bool
) -> None:
    """Whichever is quicker: the answer that is taken down, or the call that is kept to be answered later."""
    world = World(seconds=30)
    desk = desk_of(world)
    elsewhere = PendingApprovals(ApprovalSettings(), world.store, world.grants, world.events.append)
    taken, gave_up, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
    take, put = world.store.take, world.store.put

    async def slow_take(kind: str, handle: str, *, principal: str) -> bytes | None:
        body = await take(kind, handle, principal=principal)
        if kind == "approval":
            taken.set()
            await gave_up.wait()
        return body

    async def slow_put(kind: str, body: bytes, **how: Any) -> str:
        if kind == "approval" and gave_up.is_set():
            await answered.wait()
        return await put(kind, body, **how)

    call = asyncio.ensure_future(world.calls())
    [id_] = await waiting(desk)
    world.store.take, world.store.put = slow_take, slow_put  # type: ignore[method-assign]
    answer = asyncio.ensure_future(desk.decide(id_, scope, "someone"))
    if not is_kept_first:
        keep = desk.keep

        async def keep_slowly(request: ApprovalRequest) -> str:
            gave_up.set()
            return await keep(request)

        desk.keep = keep_slowly  # type: ignore[method-assign]
    await taken.wait()
    pass_time(30)
    if not is_kept_first:
        await answer
        answered.set()
    with pytest.raises(ApprovalRefused):
        await call
    gave_up.set()
    answered.set()
    await answer
    world.store.take, world.store.put = take, put  # type: ignore[method-assign]
    assert await desk.pending() == []
    with pytest.raises((UnknownApproval, AlreadyDecided)):
        await elsewhere.decide(id_, "once", "them")
    world.seconds = 0.01
    if scope:
        await world.calls()
    with pytest.raises(ApprovalRefused):
        await world.calls()
    assert len(world.sent) == (1 if scope else 0)


@pytest.mark.parametrize("order", ["here first", "elsewhere first"])
@pytest.mark.parametrize(("first", "second"), [("once", "once"), ("once", None), (None, "once")])
async def test_of_two_bridges_that_answer_one_is_heard(
    order: str, first: Any, second: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is told so, and leaves no yes behind for another call."""
    monkeypatch.setattr("mcpbridge.pipeline.approvals.pending.LOOK", 0.05)
    world = World()
    desks = [desk_of(world), PendingApprovals(ApprovalSettings(), world.store, world.grants, world.events.append)]
    call = asyncio.ensure_future(world.calls())
    [id_] = await waiting(desks[0])
    if order == "elsewhere first":
        desks.reverse()
    await desks[0].decide(id_, first, "quicker")
    with pytest.raises(UnknownApproval):
        await desks[1].decide(id_, second, "slower")
    if first:
        await call
    else:
        with pytest.raises(ApprovalRefused):
            await call
    world.approvers = []
    with pytest.raises(ApprovalUnavailable):
        await world.calls()
    assert len(world.sent) == (1 if first else 0)


async def test_a_call_that_is_withdrawn_while_it_is_recorded_cannot_be_approved() -> None:
    world = World()
    desk = desk_of(world)
    put = world.store.put
    recorded = asyncio.Event()

    async def slow(kind: str, body: bytes, **how: Any) -> str:
        handle = await put(kind, body, **how)
        recorded.set()
        await asyncio.sleep(0)
        return handle

    world.store.put = slow  # type: ignore[method-assign]
    call = asyncio.ensure_future(world.calls())
    await recorded.wait()
    call.cancel()
    await asyncio.wait([call])
    assert await desk.pending() == []


async def test_nobody_is_asked_about_arguments_of_which_they_would_see_half() -> None:
    world = World(says := Says(ONCE))
    with pytest.raises(ArgumentsRefused, match="`amount` is named twice"):
        await world.calls(b'{"amount":1000,"amount":1}')
    assert says.asked == []
    assert world.sent == []


async def test_a_client_that_waits_hears_so_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many give up after a minute of silence. What the server tells later is above all of it."""
    monkeypatch.setattr("mcpbridge.pipeline.approvals.pending.LOOK", 0.001)
    monkeypatch.setattr("mcpbridge.pipeline.approvals.pending.TELL_EVERY", 2)
    world = World()
    desk = desk_of(world)
    heard: list[tuple[str, Any]] = []
    enough = asyncio.Event()

    def hear(method: str, params: Raw) -> None:
        heard.append((method, json.loads(bytes(params))))
        if len(heard) == 5:
            enough.set()

    call = asyncio.ensure_future(world.calls(update=hear))
    async with asyncio.timeout(60):
        await enough.wait()
    [id_] = await waiting(desk)
    await desk.decide(id_, "once", "me")
    await call
    progress = [params for method, params in heard if method == "notifications/progress"]
    values = [params["progress"] for params in progress]
    assert values == sorted(set(values))
    assert values[-1] < 0
    assert all(f"mcpbridge approve {id_}" in params["message"] for params in progress)
    assert [params["level"] for method, params in heard if method == "notifications/message"] == ["warning"]


async def test_after_its_end_a_desk_takes_nothing() -> None:
    world = World(seconds=0.01)
    desk = desk_of(world)
    desk.end()
    with pytest.raises(ApprovalRefused, match="the bridge is stopping"):
        await world.calls()
    assert await desk.keep(ApprovalRequest("id", "up", "up/echo", b"{}", "", "", "", "", 0.0, 1.0, "")) == ""
    assert await desk.pending() == []


async def test_an_answer_counts_once() -> None:
    world = World()
    desk = desk_of(world)
    call = asyncio.ensure_future(world.calls())
    [id_] = await waiting(desk)
    await desk.decide(id_, None, "me")
    for _ in range(2):
        with pytest.raises(AlreadyDecided, match="already denied by me"):
            await desk.decide(id_, "once", "you")
        with pytest.raises(ApprovalRefused):
            await call
    with pytest.raises(UnknownApproval):
        await desk.decide("other", "once", "you")
    assert world.sent == []


async def test_only_so_many_answers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.pipeline.approvals.pending._REMEMBERED", 2)
    world = World()
    desk = desk_of(world)
    for number in range(4):
        desk._remember(str(number), NO)
    assert list(desk._decided) == ["2", "3"]


async def test_a_no_in_the_moment_of_giving_up_stays_one() -> None:
    world = World(seconds=0.01)
    desk = desk_of(world)
    request = ApprovalRequest("id", "up", "up/echo", b"{}", "", "", "", "", 0.0, 1.0, "")
    desk._remember("id", _Decided(NO, is_kept=True))
    assert await desk.keep(request) == ""
    assert await desk.pending() == []


# -- calls whose program does not wait for a person


class NotNow(Says):
    """An approver whose caller does not wait; the request is kept."""

    def reaches(self, call: Call) -> bool:
        return True

    async def ask(self, request: ApprovalRequest, call: Call) -> Verdict | None:
        self.asked.append(request)
        raise NotWaited


@pytest.mark.parametrize(
    ("said", "lasts"),
    [(None, 0.0), ("", 0.0), ("wait", 0.0), ("pause", 600.0), (PAUSE, PAUSED_SECONDS), ("pause ", 0.0), ("paus", 0.0)],
    ids=["nothing", "empty", "wait", "pause", "of the program itself", "blank", "cut"],  # one of them is made at random
)
async def test_a_paused_call_can_be_approved_for_as_long_as_its_yes_holds(said: str | None, lasts: float) -> None:
    """`expires` is when silence becomes a no: at once where nobody waits."""
    world = World(someone := Says(ONCE), seconds=60)
    meta = None if said is None else Body(encode({"mcpbridge/approvals": said}))
    await world.calls(meta=meta)
    [request] = someone.asked
    assert request.lasts == lasts
    assert request.expires - request.at == pytest.approx(0 if lasts else 60)


async def test_a_call_that_does_not_wait_is_refused_and_can_be_approved_later() -> None:
    world = World(NotNow(kept="Run this."), seconds=60)
    with pytest.raises(ApprovalRefused, match="A person has to approve this call of up/echo first") as refused:
        await world.calls(facts=(facts := {}))
    assert facts == {"approval": "not waited for"}
    assert refused.value.facts["mcpbridge/approval"]
    assert world.sent == []


async def test_a_no_that_was_given_later_is_for_the_call_that_names_it() -> None:
    world = World(someone := Says(ONCE, ONCE), seconds=60)
    await world.calls()
    [request] = someone.asked
    await world.grants.deny(request, "bob")
    for named, is_refused in ((request.id, True), ("another", False), ("", False)):
        meta = Body(encode({"mcpbridge/approval": named}))
        someone.verdicts = [ONCE]
        if is_refused:
            with pytest.raises(ApprovalRefused, match="was not approved"):
                await world.calls(meta=meta)
        else:
            await world.calls(meta=meta)
    assert len(world.sent) == 3


async def test_what_is_no_tool_is_named_by_its_server_and_target() -> None:
    events: list[ApprovalEvent] = []
    someone = Says(ONCE)
    grants = Grants(MemoryStore(), once_seconds=600, session_seconds=3600)
    concern = Approval([someone], grants, seconds=60, policy=lambda: "v1", audit=events.append)
    stage = concern.stage(Tool(), CallOptions())
    assert stage is not None
    call = Call("prompts/get", "up", "greet", Body(b'{"name":"greet"}'), approval="because")
    call.caller = Caller()

    async def deliver(call: Call) -> Body:
        return Body(b"{}")

    await stage(call, deliver)
    assert [request.tool for request in someone.asked] == ["up/greet"]
    assert [event.event for event in events] == ["asked", "granted"]


async def refused_again(world: World, times: int, arguments: Any = None, caller: Any = None) -> list[str]:
    """The ids that a client is told of equal calls which nobody answers."""
    told: list[str] = []
    for _ in range(times):
        with pytest.raises(ApprovalRefused, match="Nobody answered") as refused:
            await world.calls(arguments, caller=caller)
        told.append(str(refused.value.facts["mcpbridge/approval"]))
        assert f"mcpbridge approve {told[-1]}" in refused.value.advice
    return told


async def test_the_same_refused_call_is_one_pending_approval_that_is_counted() -> None:
    """A model that tries again and again must not fill the list of whoever is to answer."""
    world = World(seconds=0.01)
    desk = desk_of(world)
    world.as_before = desk.as_before
    ids = await refused_again(world, 4)
    assert len(set(ids)) == 1
    [pending] = await desk.pending()
    assert (pending.request.id, pending.request.asked) == (ids[0], 4)
    await desk.decide(ids[0], "once", "someone")
    await world.calls()
    assert len(world.sent) == 1
    assert await desk.pending() == []


async def test_a_call_that_was_denied_is_asked_for_anew() -> None:
    world = World(seconds=0.01)
    desk = desk_of(world)
    world.as_before = desk.as_before
    [first] = await refused_again(world, 1)
    await desk.decide(first, None, "someone")
    [second] = await refused_again(world, 1)
    assert second != first
    [pending] = await desk.pending()
    assert (pending.request.id, pending.request.asked) == (second, 1)


async def test_a_call_that_was_denied_for_the_session_is_not_asked_for_again() -> None:
    world = World(seconds=0.01)
    desk = desk_of(world)
    world.as_before = desk.as_before
    [first] = await refused_again(world, 1)
    await desk.decide(first, None, "someone", in_session=True)
    with pytest.raises(ApprovalRefused, match="was not approved, for this session"):
        await world.calls()
    assert await desk.pending() == []
    assert world.sent == []
    [another] = await refused_again(world, 1, {"a": 2})
    assert another != first


@pytest.mark.parametrize("other", ["arguments", "principal", "client", "policy"])
async def test_calls_that_differ_are_pending_approvals_of_their_own(other: str) -> None:
    world = World(seconds=0.01)
    desk = desk_of(world)
    world.as_before = desk.as_before
    [first] = await refused_again(world, 1, {"a": 1})
    if other == "policy":
        world.version = "v2"
    arguments = {"a": 2} if other == "arguments" else {"a": 1}
    named = {"principal": Caller(principal="ann"), "client": Caller(name="another")}
    [second] = await refused_again(world, 1, arguments, named.get(other))
    assert first != second
    assert {pending.request.id for pending in await desk.pending()} == {first, second}


async def test_equal_calls_at_a_time_wait_for_an_answer_each() -> None:
    """A yes is for one of them."""
    world = World(seconds=0.01)
    desk = desk_of(world)
    world.as_before = desk.as_before
    [first] = await refused_again(world, 1)
    world.seconds = 30
    calls = [asyncio.ensure_future(world.calls()) for _ in range(2)]
    while len(desk._waiting) < 2:
        await asyncio.sleep(0)
    ids = list(desk._waiting)
    assert first in ids
    await desk.decide(first, "once", "someone")
    done, rest = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=30)
    assert (len(done), len(rest), len(world.sent)) == (1, 1, 1)
    for call in rest:
        call.cancel()
    await asyncio.wait(rest)


async def not_waited(world: World, said: str = "pause", **more: Any) -> str:
    """The id that the program of a call is told which does not wait."""
    with pytest.raises(ApprovalRefused, match="A person has to approve") as refused:
        await world.calls(meta=Body(encode({"mcpbridge/approvals": said})), **more)
    return str(refused.value.facts["mcpbridge/approval"])


async def test_a_call_that_does_not_wait_is_one_pending_approval_however_often_it_is_made() -> None:
    """Also once the bridge was started anew, and while no more calls are accepted."""
    world = World(seconds=60)
    desk = desk_of(world, max_pending=2)
    world.as_before = desk.as_before
    other = await not_waited(world, arguments={"a": 1})
    ids = [await not_waited(world) for _ in range(3)]
    desk = desk_of(world, max_pending=2)
    world.as_before = desk.as_before
    ids.append(await not_waited(world))
    assert len(set(ids)) == 1
    pending = {one.request.id: one.request.asked for one in await desk.pending()}
    assert pending == {other: 1, ids[0]: 4}
    with pytest.raises(Overloaded):
        await world.calls({"a": 2}, meta=Body(encode({"mcpbridge/approvals": "pause"})))
    await desk.decide(ids[0], "once", "someone")
    await world.calls(meta=Body(encode({"mcpbridge/approvals": "pause"})))
    assert len(world.sent) == 1
    assert [one.request.id for one in await desk.pending()] == [other]
    assert await not_waited(world) not in ids, "that yes is used up"


async def test_paused_calls_of_the_program_itself_are_answered_each() -> None:
    """Two runs may make the same call, and each goes on with the answer to its own."""
    world = World(seconds=60)
    desk = desk_of(world)
    world.as_before = desk.as_before
    ids = [await not_waited(world, PAUSE), await not_waited(world, PAUSE), await not_waited(world)]
    assert len(set(ids)) == 3
    assert all(one.request.asked == 1 for one in await desk.pending())


async def test_a_call_that_does_not_wait_leaves_alone_what_an_equal_call_waits_for() -> None:
    world = World(seconds=60)
    desk = desk_of(world)
    world.as_before = desk.as_before
    call = asyncio.ensure_future(world.calls())
    [id_] = await waiting(desk)
    assert await not_waited(world) != id_
    await desk.decide(id_, "once", "someone")
    await asyncio.wait_for(call, 60)
    assert len(world.sent) == 1


class FailingStore(MemoryStore):
    """Nothing of one kind can be kept."""

    fails: str = ""
    failure: StoreFailed = StoreFailed("it does not answer")

    async def put(self, kind: str, body: bytes | memoryview, **how: Any) -> str:
        if kind == self.fails:
            raise self.failure
        return await super().put(kind, body, **how)


class Asks(Says):
    """An approver that keeps what it is asked."""

    store: FailingStore

    def reaches(self, call: Call) -> bool:
        return True

    async def ask(self, request: ApprovalRequest, call: Call) -> Verdict | None:
        await self.store.put("approval", b"{}", principal="", expires_in=60)
        return ONCE


async def test_where_the_store_does_not_keep_a_request_the_call_is_refused_and_says_why() -> None:
    asks = Asks()
    asks.store = FailingStore()
    asks.store.fails = "approval"
    world = World(asks)
    with pytest.raises(ApprovalUnavailable, match="the store is away") as refused:
        await world.calls()
    assert refused.value.facts == {"mcpbridge/retryAfter": 5}
    assert (world.sent, world.steps) == ([], ["asked", "unavailable"])
    asks.store.failure = ValueTooLarge(2000, 1000)
    with pytest.raises(ValueTooLarge):  # to try again would not help
        await world.calls()
    asks.store.fails = ""
    await world.calls()
    assert len(world.sent) == 1


async def test_a_yes_for_the_session_that_cannot_be_kept_is_for_this_call_and_is_called_so() -> None:
    world = World(Says(Verdict("session", "someone"), ONCE))
    world.store = FailingStore()
    world.store.fails = "grant"
    world.grants = Grants(world.store, once_seconds=600, session_seconds=3600)
    await world.calls({"a": 1})
    await world.calls({"a": 1})
    assert [event.scope for event in world.events if event.event == "granted"] == ["once", "once"]
    assert len(world.sent) == 2
