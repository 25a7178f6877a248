"""Servers with `share = "fleet"` wait for their bridge to join (issue 24)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from mcpbridge.protocol.transport import Channel, Receiver, Transport
from mcpbridge.upstream.transports.in_fleet import Membership


class Places:
    """Has nothing anywhere."""

    @asynccontextmanager
    async def channel(self, name: str, own: Transport, receiver: Receiver) -> AsyncGenerator[Channel]:
        raise NotImplementedError
        yield


async def test_all_servers_that_wait_continue_when_their_bridge_joins() -> None:
    membership, places = Membership(), Places()
    waiting = [asyncio.ensure_future(membership.places(name)) for name in ("one", "two", "three")]
    await asyncio.sleep(0)
    with anyio.fail_after(60):
        membership.join(places)
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)
        assert all(one.done() for one in waiting), f"{len(done)} of 3: the others wait for their time to be over"
        assert [one.result() for one in waiting] == [places] * 3
