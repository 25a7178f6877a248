"""A wait that takes too long ends; a cancellation from outside is never taken for that, nor lost."""

import asyncio
from typing import Any, cast

import anyio
import pytest

from mcpbridge.downstream.client import Answer, Notify
from mcpbridge.downstream.http.body_deadline import Deadline
from mcpbridge.downstream.http.event_streams import Stream
from mcpbridge.downstream.http.exchange import Accepts, Refused
from mcpbridge.downstream.http.reply import OpenReplies, Reply, ReplyOptions
from mcpbridge.protocol.jsonrpc import Frame


async def test_a_wait_that_takes_too_long_ends_with_an_error_and_the_task_goes_on() -> None:
    deadline = Deadline(0.01)
    with anyio.fail_after(30):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await deadline.within(asyncio.Event().wait())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("outside_first", [False, True])
async def test_a_cancellation_in_the_turn_in_which_the_time_is_up_is_not_lost(outside_first: bool) -> None:
    """The stop of a server, say: a task that missed it would go on with its request."""
    deadline = Deadline(0)
    went_on = False

    async def request() -> None:
        nonlocal went_on
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def time_is_up() -> None:
            if outside_first:
                task.cancel()
            deadline._check(loop)  # pyright: ignore[reportPrivateUsage] - the timer of the same turn
            if not outside_first:
                task.cancel()

        loop.call_soon(time_is_up)
        try:
            await deadline.within(asyncio.Event().wait())
        except TimeoutError:
            went_on = True

    task = asyncio.create_task(request())
    with anyio.fail_after(30):
        await asyncio.wait([task])
    assert task.cancelled()
    assert not went_on


async def test_a_task_that_was_cancelled_before_and_went_on_still_gets_its_timeout() -> None:
    async def request() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass  # as whoever cleans up does
        try:
            await Deadline(0.01).within(asyncio.Event().wait())
        except TimeoutError:
            return "timeout"
        return "none"

    task = asyncio.create_task(request())
    await asyncio.sleep(0)
    task.cancel()
    with anyio.fail_after(30):
        assert await task == "timeout"


async def test_a_wait_that_ends_by_itself_when_its_time_is_up_leaves_no_cancellation_behind() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        return "never"

    with anyio.fail_after(30):
        assert await Deadline(0.01).within(stubborn()) == "done"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


class QuietExchange:
    """A client that takes whatever it is sent."""

    accepts = Accepts(json=True, events=False)

    def __init__(self) -> None:
        self.refusals: list[str] = []

    async def refuse(self, refused: Refused, id_: bytes = b"") -> None:
        self.refusals.append(str(refused))


@pytest.mark.parametrize("is_outside_too", [False, True])
async def test_a_reply_that_is_withdrawn_as_its_server_is_torn_down_is_cancelled(is_outside_too: bool) -> None:
    exchange = QuietExchange()
    options = ReplyOptions(OpenReplies(), keep_alive=60, open_stream=Stream, close_stream=lambda stream: None)
    reply = Reply(cast("Any", exchange), Frame(), options)
    began = asyncio.Event()

    async def work(notify: Notify) -> Answer:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(reply.run(work))
    with anyio.fail_after(30):
        await began.wait()
        reply.withdraw(Refused(503, "stopping"))
        if is_outside_too:
            task.cancel()
        await asyncio.wait([task])
    assert task.cancelled() is is_outside_too
    assert exchange.refusals == ([] if is_outside_too else ["stopping"])
