"""Programs with a bridge that end in all kinds of ways: `python ending_programs.py WAY CONFIG`.

Each says `up` once its server has answered. The graces of servers are short here: those of the tests use them up.
"""

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import uvloop

from mcpbridge.base.errors import BridgeClosed
from mcpbridge.base.process import process
from mcpbridge.library.bridge import Bridge
from mcpbridge.library.client import sync_loop as loop_thread
from mcpbridge.library.sync_bridge import SyncBridge

WAYS: dict[str, Callable[[str], object]] = {}


def way(function: Callable[[str], object]) -> Callable[[str], object]:
    WAYS[function.__name__.replace("_", "-")] = function
    return function


def say(word: str) -> None:
    print(word, flush=True)


async def enter(config: str) -> Bridge:
    """Never left."""
    bridge = Bridge.open(config, remember=False)
    await bridge.__aenter__()
    assert (await bridge.call_tool("rooted__echo", {"text": "hi"})).text == "hi"
    say("up")
    return bridge


def running(config: str, then: Callable[[Bridge], Any]) -> None:
    async def main() -> None:
        async with Bridge.open(config, remember=False) as bridge:
            assert (await bridge.call_tool("rooted__echo", {"text": "hi"})).text == "hi"
            say("up")
            await then(bridge)

    asyncio.run(main())


def opened(config: str) -> SyncBridge:
    bridge = SyncBridge.open(config, remember=False)
    assert bridge.call_tool("rooted__echo", {"text": "hi"}).text == "hi"
    say("up")
    return bridge


async def hold(bridge: Bridge) -> None:
    """A call that never ends."""
    await bridge.call_tool("rooted__hold")


# -- an event loop of the program's own


@way
def raises(config: str) -> None:
    async def then(_: Bridge) -> NoReturn:
        raise ValueError("of the program")

    running(config, then)


@way
def exits_at_once(config: str) -> None:
    async def then(_: Bridge) -> NoReturn:
        os._exit(3)

    running(config, then)


@way
def waits(config: str) -> None:
    running(config, hold)


@way
def exits_during_a_call(config: str) -> None:
    async def then(bridge: Bridge) -> NoReturn:
        call = asyncio.ensure_future(hold(bridge))
        await asyncio.sleep(0)
        assert not call.done()
        sys.exit(3)

    running(config, then)


@way
def stops_the_loop(config: str) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(enter(config))


@way
def runs_in_a_daemon_thread(config: str) -> None:
    up = threading.Event()

    async def then(bridge: Bridge) -> None:
        up.set()
        await hold(bridge)

    threading.Thread(target=running, args=(config, then), daemon=True).start()
    assert up.wait(20)


@way
def leaves_a_forked_child(config: str) -> None:
    async def then(bridge: Bridge) -> None:
        if os.fork() == 0:
            os.closerange(0, 3)
            signal.pause()
        say("forked")
        await hold(bridge)

    running(config, then)


@way
def lives_on(config: str) -> None:
    """Of each bridge something went wrong, and the program goes on."""

    async def forget() -> None:
        await enter(config)
        gc.collect()

    async def fail(_: Bridge) -> NoReturn:
        raise ValueError("of the program")

    asyncio.run(forget())
    thread = threading.Thread(target=running, args=(config, fail))
    thread.start()
    thread.join()
    for make in (asyncio.new_event_loop, uvloop.new_event_loop):
        loop = make()
        loop.run_until_complete(enter(config))
        loop.close()
    opened(config)
    gc.collect()
    never_left(config)
    say("over")
    sys.stdin.read()


# -- the thread of `SyncBridge`


@way
def sync_raises(config: str) -> None:
    with opened(config):
        raise ValueError("of the program")


@way
def sync_never_closes(config: str) -> None:
    globals()["kept"] = opened(config)


@way
def sync_waits(config: str) -> None:
    with opened(config) as bridge:
        bridge.call_tool("rooted__hold")


@way
def sync_exits_during_calls(config: str) -> None:
    bridge = opened(config)
    for is_daemon in (True, False):
        threading.Thread(target=bridge.call_tool, args=("rooted__hold",), daemon=is_daemon).start()
    raise ValueError("of the program")


async def deaf() -> None:
    """Does not heed that it is cancelled."""
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@way
def sync_does_not_heed_its_end(config: str) -> None:
    entered = threading.Event()

    async def stuck() -> None:
        entered.set()
        await deaf()

    def call() -> None:
        with suppress(BridgeClosed):
            bridge.call_tool("stuck")

    bridge = opened(config)
    bridge.add_tool(stuck)
    threading.Thread(target=call, daemon=True).start()
    assert entered.wait(20)


def never_left(config: str) -> None:
    class NeverLeft(Bridge):
        async def __aexit__(self, *_: object) -> None:
            await deaf()

    loop_thread.LEAVE_SECONDS = 0.2
    bridge = SyncBridge(lambda: NeverLeft.open(config, remember=False))
    assert bridge.call_tool("rooted__echo", {"text": "hi"}).text == "hi"
    say("up")
    bridge.close()


if __name__ == "__main__":
    process.STDIN_GRACE = process.TERM_GRACE = 0.05
    loop_thread.END_SECONDS = 0.1
    WAYS[sys.argv[1]](sys.argv[2])
