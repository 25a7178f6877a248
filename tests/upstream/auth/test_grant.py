"""Tasks of sign-ins: one that fails ends alone."""

import asyncio
import errno

import anyio

from mcpbridge.upstream.auth.grant import AuthTasks


async def test_a_sign_in_that_fails_in_any_way_ends_no_other() -> None:
    """A store on a disk that fails must not end the bridge."""
    flights, went_on = AuthTasks(), asyncio.Event()

    async def fail() -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    async def go_on() -> None:
        went_on.set()

    with anyio.fail_after(30):
        async with flights.running():
            flights.spawn(fail())
            for _ in range(5):
                await asyncio.sleep(0)
            flights.spawn(go_on())
            await went_on.wait()


async def test_the_end_ends_what_still_runs_and_nothing_begins_after_it() -> None:
    flights, ended = AuthTasks(), asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with anyio.fail_after(30):
        async with flights.running():
            flights.spawn(wait())
            await asyncio.sleep(0)
        assert ended.is_set()
        late = wait()
        flights.spawn(late)
        assert late.cr_frame is None
