"""The book of late calls: who joins, who gets what is kept, and what is not kept."""

import asyncio
import json
from typing import Any

import pytest

from mcpbridge.base.errors import StoreFailed, UpstreamError, UpstreamTimeout
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Client
from mcpbridge.pipeline.stages.abandoned_calls import LATE, LATE_META, MAX_LATE, AbandonedCalls
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.results.kept_results import RESULTS, KeptResults
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.storage.store import Entry
from mcpbridge.upstream.settings import ServerSettings

TOOL = ToolRef("up", "look", "up__look", "up/look", b"{}", b"{}", b"{}", {})
RESULT = {"content": [{"type": "text", "text": "at last"}]}


def book(late: Any = "keep", store: MemoryStore | None = None, lifetime: float = 60, **server: Any) -> AbandonedCalls:
    servers = {"up": ServerSettings.model_validate({"command": "x", **server})}
    return AbandonedCalls(store or MemoryStore(), servers, lambda tool: CallOptions(late=late), lifetime)


CLIENTS = {name: Client(principal=name) for name in ("", "alice", "bob", "somebody else")}
"""By principal; each has a session of its own."""


def call_of(principal: str = "", client: Client | None = None, **arguments: Any) -> Call:
    params = Body(json.dumps({"name": "look", "arguments": arguments}).encode())
    call = Call("tools/call", "up", "look", params)
    call.tool, call.caller = TOOL, client or CLIENTS[principal]
    return call


async def repeated(late: AbandonedCalls, call: Call) -> dict[str, Any]:
    """What a call gets that goes through the stage; `{"fresh": true}` if it runs anew."""
    stage = late.stage(TOOL, CallOptions())
    assert stage is not None

    async def run(call: Call) -> Body:
        return Body(b'{"fresh":true}')

    return (await stage(call, run)).value()


def begin(late: AbandonedCalls, call: Call) -> str:
    """Its client stops waiting; returns the handle."""
    found = late.begin(call)
    assert found is not None
    return found.id


FRESH = {"fresh": True}


async def finish(late: AbandonedCalls, call: Call, **result: Any) -> Any:
    return await late.finished(call, Body(json.dumps(result or RESULT).encode()))


async def test_a_kept_result_answers_the_same_call_once_and_can_be_read_until_it_expires() -> None:
    store = MemoryStore()
    late, call = book(store=store), call_of(a=1, b=[2.0])
    handle = begin(late, call)
    assert await finish(late, call) is not None
    assert await repeated(late, call_of(a=2, b=[2.0])) == FRESH
    again = call_of(b=[2.0], a=1)
    found = await repeated(late, again)
    assert found["content"] == RESULT["content"]
    assert found["_meta"][LATE_META]["handle"] == handle
    assert again.facts == {"late": handle, "recalled": handle}
    assert await repeated(late, call_of(a=1, b=[2.0])) == FRESH
    assert json.loads(await store.get(RESULTS, handle, principal="") or b"") == RESULT
    summary = await KeptResults(store, lifetime=60).summary(handle, principal="")
    assert summary is not None
    assert summary.tool == TOOL.id, "whose roles open the tool may read it"


async def test_the_same_call_of_another_principal_runs_anew() -> None:
    late, call = book(), call_of("alice")
    begin(late, call)
    await finish(late, call)
    assert await repeated(late, call_of("bob")) == FRESH
    assert LATE_META in (await repeated(late, call_of("alice")))["_meta"]


async def test_the_same_call_of_another_session_runs_anew() -> None:
    """It may be meant as a second deed: only who gave up knows of the first."""
    late, client = book(), Client()
    call = call_of(client=client)
    begin(late, call)
    await finish(late, call)
    assert await repeated(late, call_of()) == FRESH
    assert "_meta" in await repeated(late, call_of(client=client))


async def test_the_same_call_joins_the_one_that_still_runs() -> None:
    late, call = book(), call_of()
    begin(late, call)
    joined = [asyncio.ensure_future(repeated(late, call_of())) for _ in range(2)]
    await asyncio.sleep(0)
    joined[0].cancel()  # it gives up too: that is no concern of the others
    await asyncio.sleep(0)
    assert await finish(late, call) is None, "who waits for it has it; nobody needs to be told"
    assert LATE_META in (await joined[1])["_meta"]
    assert await repeated(late, call_of()) == FRESH


async def test_those_that_joined_a_call_that_fails_get_its_error() -> None:
    late, call = book(), call_of()
    begin(late, call)
    joined = asyncio.ensure_future(repeated(late, call_of()))
    await asyncio.sleep(0)
    late.failed(call, UpstreamTimeout("up", 60))
    with pytest.raises(UpstreamTimeout):
        await joined
    assert await repeated(late, call_of()) == FRESH
    late.failed(call)  # what comes after that changes nothing


async def test_those_that_joined_a_call_that_is_cancelled_hear_of_it() -> None:
    late, call = book(), call_of()
    begin(late, call)
    joined = asyncio.ensure_future(repeated(late, call_of()))
    await asyncio.sleep(0)
    late.failed(call)
    with pytest.raises(UpstreamError, match="cancelled"):
        await joined


@pytest.mark.parametrize(
    "result",
    [{**RESULT, "isError": True}, {"resultType": "input_required", "requestState": "s"}, {"resultType": "task"}],
    ids=["a failure", "a question", "a task"],
)
async def test_what_is_no_success_is_not_kept(result: dict[str, Any]) -> None:
    late, call = book(), call_of()
    begin(late, call)
    assert await finish(late, call, **result) is None
    assert await repeated(late, call_of()) == FRESH


async def test_a_result_that_cannot_be_kept_changes_nothing_else() -> None:
    class Full(MemoryStore):
        async def put(self, *_: Any, **__: Any) -> str:
            raise StoreFailed("the disk is full")

    late, call = book(store=Full()), call_of()
    begin(late, call)
    assert await finish(late, call) is None
    assert await repeated(late, call_of()) == FRESH


async def test_a_kept_result_expires() -> None:
    late, call = book(lifetime=0.01), call_of()
    begin(late, call)
    await finish(late, call)
    async with asyncio.timeout(30):
        while late.known:
            await asyncio.sleep(0.01)
    assert await repeated(late, call_of()) == FRESH


async def test_a_principal_has_only_so_many_late_calls_and_the_oldest_kept_result_goes_first() -> None:
    late = book()
    calls = [call_of(number=number) for number in range(MAX_LATE)]
    for call in calls:
        begin(late, call)
    assert late.begin(call_of(number=-1)) is None
    begin(late, call_of("somebody else"))
    for call in calls[:2]:
        await finish(late, call)
    begin(late, call_of(number=-1))
    assert await repeated(late, call_of(number=0)) == FRESH
    assert LATE_META in (await repeated(late, call_of(number=1)))["_meta"]


async def test_tools_whose_late_calls_are_cancelled_have_no_stage_and_are_not_kept() -> None:
    late = book("cancel")
    assert late.begin(call_of()) is None
    assert late.stage(TOOL, CallOptions(late="cancel")) is None
    assert late.stage(None, CallOptions()) is None


async def test_leaving_forgets_what_was_kept() -> None:
    late, call = book(), call_of()
    begin(late, call)
    await finish(late, call)
    late.end()
    assert await repeated(late, call_of()) == FRESH


async def test_a_result_whose_storing_is_cancelled_goes_to_who_waits_for_it_and_keeps_nobody_waiting() -> None:
    storing = asyncio.Event()

    class Slow(MemoryStore):
        async def put(self, *_: Any, **__: Any) -> str:
            storing.set()
            await asyncio.Event().wait()
            raise AssertionError

    late, call = book(store=Slow()), call_of()
    async with asyncio.timeout(30):
        begin(late, call)
        joined = asyncio.ensure_future(repeated(late, call_of()))
        finishing = asyncio.ensure_future(finish(late, call))
        await storing.wait()
        finishing.cancel()
        assert LATE_META in (await joined)["_meta"]
        assert finishing.cancelled()
        assert await repeated(late, call_of()) == FRESH
        assert not late.known


@pytest.mark.parametrize("place", ["tool", "server"])
async def test_who_joins_waits_no_longer_than_such_a_call_may_take(place: str) -> None:
    late, call = book(call_timeout=0.01, max_call_timeout=0.01), call_of()
    stage = late.stage(TOOL, CallOptions(timeouts=Timeouts(0.01, 0.01) if place == "tool" else None))
    assert stage is not None
    begin(late, call)
    async with asyncio.timeout(30):
        with pytest.raises(UpstreamTimeout) as raised:
            await stage(call_of(), never)
        assert "it is not run twice" in raised.value.full_message()
        assert await finish(late, call) is not None, "it is kept all the same"
        assert LATE_META in (await repeated(late, call_of()))["_meta"]


async def never(_: Call) -> Body:
    raise AssertionError("it must not run twice")


async def test_two_equal_calls_that_were_given_up_are_each_got_once() -> None:
    """Else the one that calls again would run a third time what it made twice."""
    late, first, second = book(), call_of(), call_of()
    handles = [begin(late, first), begin(late, second)]
    await finish(late, second)
    await finish(late, first)
    got = [(await repeated(late, call_of()))["_meta"][LATE_META]["handle"] for _ in handles]
    assert got == handles
    assert await repeated(late, call_of()) == FRESH


# -- in a fleet


class Counted(MemoryStore):
    """One store of several bridges, which notes what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = list[str]()

    async def put(self, kind: str, *rest: Any, **more: Any) -> str:
        self.asked.append(f"put {kind}")
        return await super().put(kind, *rest, **more)

    async def take(self, kind: str, *rest: Any, **more: Any) -> bytes | None:
        self.asked.append(f"take {kind}")
        return await super().take(kind, *rest, **more)

    async def entries(self, kind: str, *rest: Any, **more: Any) -> list[Entry]:
        self.asked.append(f"entries {kind}")
        return await super().entries(kind, *rest, **more)


def fleet_book(store: MemoryStore, *, lifetime: float = 60) -> AbandonedCalls:
    servers = {"up": ServerSettings.model_validate({"command": "x"})}
    return AbandonedCalls(store, servers, lambda tool: CallOptions(), lifetime, together=store)


def at_another(principal: str = "alice", conversation: str = "the session") -> Client:
    """The client of a session as one more bridge knows it."""
    return Client(principal, conversation=conversation)


async def with_a_late_result(store: MemoryStore, **arguments: Any) -> AbandonedCalls:
    """A bridge that has kept a late result of the session."""
    late, call = fleet_book(store), call_of(client=at_another(), **arguments)
    begin(late, call)
    assert await finish(late, call) is not None
    return late


async def at_another_bridge(store: MemoryStore, client: Client) -> AbandonedCalls:
    late = fleet_book(store)
    await late.came_over(client.principal, client.session)
    return late


async def test_the_bridge_that_takes_a_session_over_gives_its_late_results_once() -> None:
    store, client = Counted(), at_another()
    await with_a_late_result(store, a=1)
    late = await at_another_bridge(store, client)
    assert await repeated(late, call_of(client=client, a=2)) == FRESH
    found = await repeated(late, call_of(client=client, a=1))
    assert found["content"] == RESULT["content"]
    assert found["_meta"][LATE_META]["finishedAt"]
    assert await repeated(late, call_of(client=client, a=1)) == FRESH
    client = at_another()
    assert await repeated(await at_another_bridge(store, client), call_of(client=client, a=1)) == FRESH


@pytest.mark.parametrize(
    "client", [at_another("bob"), at_another(conversation="another session"), at_another(conversation="")]
)
async def test_who_is_somebody_else_or_has_another_session_finds_nothing(client: Client) -> None:
    store = Counted()
    await with_a_late_result(store)
    late = await at_another_bridge(store, client)
    assert not late.known
    assert await repeated(late, call_of(client=client)) == FRESH


async def test_of_two_bridges_that_both_have_the_session_one_gives_it() -> None:
    """One was only taken for dead."""
    store, clients = Counted(), [at_another(), at_another()]
    await with_a_late_result(store)
    books = [await at_another_bridge(store, client) for client in clients]
    found = await asyncio.gather(
        *(repeated(late, call_of(client=client)) for late, client in zip(books, clients, strict=True))
    )
    assert sorted("_meta" in one for one in found) == [False, True]


async def test_what_was_given_to_who_waited_for_it_is_not_found_at_another_bridge() -> None:
    class Joined(Counted):
        """The same call comes while the entry is written."""

        async def put(self, kind: str, *rest: Any, **more: Any) -> str:
            handle = await super().put(kind, *rest, **more)
            if kind == LATE:
                joined.append(asyncio.ensure_future(repeated(late, call_of(client=client))))
                await asyncio.sleep(0)
            return handle

    joined, store, client = list["asyncio.Future[Any]"](), Joined(), at_another()
    late, call = fleet_book(store), call_of(client=client)
    begin(late, call)
    assert await finish(late, call) is None
    assert LATE_META in (await joined[0])["_meta"]
    assert not (await at_another_bridge(store, at_another())).known


async def test_the_store_is_asked_when_a_session_comes_over_and_never_for_a_call() -> None:
    store, client = Counted(), at_another()
    late = await at_another_bridge(store, client)
    assert store.asked == ["entries late"]
    await repeated(late, call_of(client=client))
    assert store.asked == ["entries late"]
    await with_a_late_result(store)
    late = await at_another_bridge(store, client)
    store.asked.clear()
    await repeated(late, call_of(client=client, a=1))
    assert store.asked == []


async def test_without_a_fleet_the_store_has_the_result_alone() -> None:
    store, client = Counted(), at_another()
    late, call = book(store=store), call_of(client=client)
    begin(late, call)
    await finish(late, call)
    await late.came_over(client.principal, client.session)
    assert LATE_META in (await repeated(late, call_of(client=client)))["_meta"]
    assert store.asked == ["put result"]


async def test_an_entry_that_another_version_wrote_is_left_alone() -> None:
    store = Counted()
    await store.put(LATE, b"", principal="alice", expires_in=60, label=b"{}")
    assert not (await at_another_bridge(store, at_another())).known


async def test_what_came_over_expires_with_its_entry() -> None:
    store, client = Counted(), at_another()
    late, call = fleet_book(store, lifetime=0.3), call_of(client=client)
    begin(late, call)
    await finish(late, call)
    late = await at_another_bridge(store, client)
    async with asyncio.timeout(30):
        while late.known:
            await asyncio.sleep(0.01)
    assert await repeated(late, call_of(client=client)) == FRESH
