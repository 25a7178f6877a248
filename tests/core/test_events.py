"""Events come in order to everybody who listens, and nobody who does not listen holds anything up."""

import asyncio
import gc
import threading

import anyio
import pytest

from mcpbridge.config.schema import Settings
from mcpbridge.core.events import Event, EventBus
from mcpbridge.library.bridge import Bridge


async def test_events_come_in_order_to_everybody_who_listens() -> None:
    bus = EventBus()
    assert not bus.is_heard
    with bus.subscribe() as one, bus.subscribe() as two:
        assert bus.is_heard
        bus.publish("a", 1, run="r", session="s", tool="t")
        bus.publish("b")
        with anyio.fail_after(30):
            first = await anext(one)
            assert (first.name, first.data, first.run, first.session, first.tool) == ("a", 1, "r", "s", "t")
            assert (await anext(one)).name == "b"
            assert [(await anext(two)).name for _ in range(2)] == ["a", "b"]


async def test_who_does_not_take_events_loses_the_oldest_and_is_told_how_many() -> None:
    bus = EventBus()
    slow = bus.subscribe(limit=2)
    for number in range(5):
        bus.publish("e", number)
    assert slow.lost == 3
    slow.close()
    assert [event.data async for event in slow] == [3, 4]
    bus.publish("later")
    assert [event async for event in slow] == []
    assert not bus.is_heard


async def test_who_stops_listening_without_a_word_is_forgotten() -> None:
    bus = EventBus()
    bus.publish("nobody hears")

    async def first() -> Event:
        async for event in bus.subscribe():
            return event
        raise AssertionError

    hearing = asyncio.create_task(first())
    await asyncio.sleep(0)
    bus.publish("heard")
    with anyio.fail_after(30):
        assert (await hearing).name == "heard"
    del hearing
    gc.collect()
    assert not bus.is_heard


async def test_threads_publish_too() -> None:
    """A local tool may run in a thread; who listens is on the event loop."""
    bus = EventBus()
    events = bus.subscribe()
    thread = threading.Thread(target=bus.publish, args=("from a thread", 1))
    with anyio.fail_after(30):
        thread.start()
        assert (await anext(events)).name == "from a thread"
    thread.join()


async def test_a_bridge_that_stops_ends_every_subscription() -> None:
    async with Bridge(Settings()) as bridge:
        events = bridge.events.subscribe()
    with anyio.fail_after(30):
        assert [event async for event in events] == []


def test_a_subscription_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        EventBus().subscribe(limit=0)
