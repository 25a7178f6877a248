"""Epochs of servers, for caches on several machines: what was read in another epoch than the present one is stale.

Each is a random name at the server of the store, which whoever writes to a server replaces, before and after. Names are
random since numbers would come again when the server has lost its data.

What cannot be written while the server is away is written as soon as it is back. Until then, others may use what they
have cached; and for good, up to its time, if the bridge ends before.

    PREFIX:{v1/#epochs}:DIGEST      the epoch of one server
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256

import anyio

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.storage.redis.connections import Connections
from mcpbridge.storage.settings import RedisAddress

log = get_logger("mcpbridge.storage")

_SECONDS = 1.0
"""How long a call waits for the server, until it counts as failing."""
_AGAIN_AFTER = 1.0
"""Seconds between two attempts to write down what could not be."""
_KEPT = 7 * 86400
"""Seconds after a change; a result is not cached for so long, or counts as stale then."""


class SharedEpochs:
    """The epochs, as one bridge sees them. It never fails."""

    def __init__(self, address: RedisAddress, prefix: str) -> None:
        self.server = Connections(address, seconds=_SECONDS)
        self._begin = f"{prefix}:{{v1/#epochs}}:"
        self._owed = set[str]()
        """Servers whose change could not be written down."""
        self._tasks = OwnedTasks()
        self._writing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<SharedEpochs: {len(self._owed)} changes to write>"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """What could not be written down is, later; at the end the connections are closed."""
        try:
            async with self._tasks.running():
                yield
        finally:
            with anyio.CancelScope(shield=True):
                await self.close()

    async def current(self, server: str) -> str | None:
        """The present epoch of a server; None: it cannot be known."""
        fresh = secrets.token_hex(8)
        if self._owed:
            for other in list(self._owed):
                await self.changed(other)
            if server in self._owed:
                return None
        try:
            found = await self.server.call("SET", self.key_of(server), fresh, "NX", "GET", "EX", _KEPT)
        except StoreFailed:
            return None
        return fresh if found is None else found.decode()

    async def changed(self, server: str) -> None:
        """Another one begins: something was, or is about to be, written to a server."""
        self._owed.add(server)
        try:
            await self.server.call(
                "SET", self.key_of(server), secrets.token_hex(8), "EX", _KEPT, until="on a replica that is up"
            )
        except StoreFailed as error:
            log.debug("other bridges do not learn of a write yet", upstream=server, reason=str(error))
            if self._writing is None or self._writing.done():
                self._writing = self._tasks.spawn(self._write_owed())
            return
        self._owed.discard(server)

    async def _write_owed(self) -> None:
        while self._owed:
            await asyncio.sleep(_AGAIN_AFTER)
            for server in list(self._owed):
                await self.changed(server)

    async def close(self) -> None:
        """Close the connections."""
        await self.server.close()

    def owes(self, server: str) -> bool:
        """Something was written to a server by way of this bridge that could not be written down yet."""
        return server in self._owed

    def key_of(self, server: str) -> str:
        """The key that has the epoch of a server."""
        return self._begin + sha256(server.encode("utf-8", "surrogatepass")).hexdigest()
