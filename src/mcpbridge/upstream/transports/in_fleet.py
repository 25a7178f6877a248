"""A server of which there is one process for a whole fleet: this bridge runs it, or reaches the bridge that does.

Which of both it is, is decided anew for each connection, by whatever this bridge joined (`FleetPlaces`).
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.protocol.transport import Channel, Receiver, Transport, TransportKind

JOIN_SECONDS = 10.0
"""How long a server waits for its bridge to join the fleet: the servers are started first."""


class FleetPlaces(Protocol):
    """Where in the fleet the one process of each server is."""

    def channel(self, name: str, own: Transport, receiver: Receiver) -> AbstractAsyncContextManager[Channel]:
        """A channel to the process, wherever it is. `own` starts it here.

        Raises:
            UpstreamUnavailable: it cannot be started, or reached.
        """
        ...


class Membership:
    """Of one bridge, once it has joined."""

    def __init__(self) -> None:
        self._places: FleetPlaces | None = None
        self._joined = asyncio.Event()

    def join(self, places: FleetPlaces | None) -> None:
        """The bridge is a member now; None: it is none any more."""
        self._places = places
        if places is not None:
            self._joined.set()
        else:
            self._joined.clear()

    async def places(self, name: str) -> FleetPlaces:
        """What the bridge joined, for the server of this name.

        Raises:
            UpstreamUnavailable: it is no member.
        """
        if self._places is None:
            try:
                async with asyncio.timeout(JOIN_SECONDS):
                    await self._joined.wait()
            except TimeoutError:
                pass
        if self._places is None:
            raise UpstreamUnavailable(
                name, 'the fleet has it once (`share = "fleet"`), and this bridge is not in the fleet'
            )
        return self._places


class InFleetTransport:
    """Reaches a server that the fleet has once."""

    def __init__(self, name: str, own: Transport, membership: Membership) -> None:
        """`own` starts it on this bridge."""
        self._name, self._own, self._membership = name, own, membership

    @property
    def kind(self) -> TransportKind:
        """See `Transport`."""
        return self._own.kind

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncGenerator[Channel]:
        """See `Transport`."""
        places = await self._membership.places(self._name)
        async with places.channel(self._name, self._own, receiver) as channel:
            yield channel

    def last_words(self) -> str:
        """See `Transport`."""
        return self._own.last_words()
