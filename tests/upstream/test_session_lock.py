"""One client at a time where questions name no call: who comes in when, and that nobody waits for ever."""

import asyncio

import anyio
import pytest

from mcpbridge.base.errors import Overloaded
from mcpbridge.upstream.session_lock import SessionLock


def turns(places: int = 8, patience: float = 30) -> SessionLock:
    return SessionLock("up", places=places, patience=patience)


def wait(room: SessionLock, owner: object, *, is_asked: bool = False) -> asyncio.Task[None]:
    return asyncio.ensure_future(room.enter(owner, is_asked=is_asked))


async def steps() -> None:
    """Let everything happen that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_of_one_client_run_side_by_side_and_those_of_another_wait() -> None:
    room = turns()
    await room.enter("a", is_asked=False)
    await room.enter("a", is_asked=False)
    assert room.blocks("b")
    assert not room.blocks("a")
    other = wait(room, "b")
    room.leave()
    await steps()
    assert not other.done()
    room.leave()
    with anyio.fail_after(30):
        await other
    assert room.blocks("a")
    room.leave()
    assert not room.blocks("a")


async def test_who_waits_longest_comes_in_with_all_its_calls() -> None:
    room = turns()
    await room.enter("a", is_asked=False)
    waiting = {name: wait(room, name[0]) for name in ("b1", "c1", "b2", "c2", "d1")}
    await steps()
    order: list[set[str]] = []
    while len(order) < 3:
        room.leave()
        await steps()
        came = {name for name, task in waiting.items() if task.done()} - {name for names in order for name in names}
        order.append(came)
        for _ in range(len(came) - 1):
            room.leave()
    assert order == [{"b1", "b2"}, {"c1", "c2"}, {"d1"}]


async def test_nobody_is_kept_out_by_a_client_that_calls_on_and_on() -> None:
    room = turns()
    await room.enter("a", is_asked=False)
    other, again = wait(room, "b"), wait(room, "a")
    await steps()
    assert not again.done()
    room.leave()
    await steps()
    assert other.done()
    assert not again.done()
    room.leave()
    await steps()
    assert again.done()


async def test_calls_of_a_client_that_is_being_asked_go_first() -> None:
    """Its answer may depend on them: sampling that uses the same server's tools."""
    room = turns()
    await room.enter("a", is_asked=False)
    other = wait(room, "b")
    await steps()
    with anyio.fail_after(30):
        await room.enter("a", is_asked=True)
    room.leave()
    room.leave()
    with anyio.fail_after(30):
        await other


async def test_only_so_many_wait_and_none_too_long() -> None:
    room = turns(places=1, patience=1)
    await room.enter("a", is_asked=False)
    first = wait(room, "b")
    await steps()
    with pytest.raises(Overloaded, match="another client's calls"):
        await room.enter("c", is_asked=False)
    with pytest.raises(Overloaded, match="busy for 1 s"):
        await first
    room.leave()
    await room.enter("c", is_asked=False)  # nothing of the others is left


async def test_who_gives_up_waiting_leaves_no_trace() -> None:
    room = turns()
    await room.enter("a", is_asked=False)
    gone, stays = wait(room, "b"), wait(room, "c")
    await steps()
    gone.cancel()
    await steps()
    room.leave()
    with anyio.fail_after(30):
        await stays
    room.leave()
    assert not room.blocks("b")


async def test_who_gives_up_in_the_turn_that_lets_it_in_lets_in_the_next() -> None:
    room = turns()
    await room.enter("a", is_asked=False)
    gone, stays = wait(room, "b"), wait(room, "c")
    await steps()
    room.leave()
    gone.cancel()
    with anyio.fail_after(30):
        await stays
    assert gone.cancelled()
    assert room.blocks("b")


async def test_the_end_of_any_call_is_told_to_who_waits_for_it() -> None:
    room = turns()
    await room.enter("a", is_asked=False)
    await room.enter("a", is_asked=False)
    with anyio.fail_after(30):
        waiting = [asyncio.ensure_future(room.left(30)) for _ in range(2)]
        await steps()
        room.leave()
        await asyncio.gather(*waiting)
        await room.left(0.01)  # or when the time is up


async def test_calls_of_a_home_come_in_while_one_of_it_that_had_waited_is_asked() -> None:
    turns = SessionLock("up", places=5, patience=5)
    await turns.enter("first", is_asked=False, home="a")
    waiting = asyncio.ensure_future(turns.enter("second", is_asked=False, home="b"))
    await asyncio.sleep(0)
    turns.leave()
    await waiting
    async with asyncio.timeout(30):
        await turns.enter("nested", is_asked=True, home="b")
    stranger = asyncio.ensure_future(turns.enter("third", is_asked=True, home="a"))
    await asyncio.sleep(0)
    assert not stranger.done()
    turns.leave()
    turns.leave()
    await stranger
