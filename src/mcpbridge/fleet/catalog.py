"""What the servers of a fleet offered last, on the server of the store: a bridge that starts lists what others list.

It is the manifest (`upstream/manifest.py`) of all bridges: whoever sees that a server offers something else writes it
down, and a bridge reads all of it once, before its servers start. Names follow from the fleet's key, so that whoever
can read the server of the store does not learn how servers are started.
"""

import hmac
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import anyio

from mcpbridge.base.errors import StoreFailed, ValueTooLarge
from mcpbridge.base.log import get_logger
from mcpbridge.fleet.settings import FleetSettings
from mcpbridge.storage.redis.store import MAX_BYTES, RedisStore
from mcpbridge.storage.settings import StoreSettings, redis_address
from mcpbridge.upstream.manifest import KEPT_SECONDS, MOST_FILES, Manifest

log = get_logger("mcpbridge.fleet")

_KIND = "fleet-catalog"
_ROOM = 64 << 20
"""Bytes of all of it, compressed: what was not renewed for longest goes first."""
_USE = b"mcpbridge fleet, catalog, 1:"


@asynccontextmanager
async def shared_catalog(fleet: FleetSettings, store: StoreSettings, manifest: Manifest) -> AsyncGenerator[None]:
    """The manifest is that of the whole fleet meanwhile. Without the server of the store it is this bridge's alone."""
    assert fleet.key is not None, "only a fleet that is configured has a catalog"
    most = MAX_BYTES if store.max_bytes is None else store.max_bytes  # it sweeps what all have there
    shared = RedisStore(redis_address(store), prefix=store.prefix, key=store.key, max_bytes=most)
    catalog = FleetCatalog(shared, fleet.key)
    try:
        await catalog.read()
        manifest.shared = catalog
        yield
    finally:
        manifest.shared = None
        with anyio.CancelScope(shield=True):  # takes a second at most
            await catalog.close()


class FleetCatalog:
    """What is written down there. Implements `SharedManifest`."""

    def __init__(self, store: RedisStore, key: str, *, room: int = _ROOM) -> None:
        """`key`: the fleet's. `room`: bytes of all that any bridge wrote down."""
        self._store, self._key = store, key.encode()
        self._known = dict[str, bytes]()
        self._has_complained = False
        store.bound(_KIND, room)

    async def read(self) -> None:
        """Read all of it; nothing, if that fails."""
        try:
            for entry in await self._store.entries(_KIND, principal="", limit=MOST_FILES, newest_first=True):
                data = await self._store.get(_KIND, entry.handle, principal="")
                if data is not None:
                    self._known[entry.handle] = data
        except StoreFailed as error:
            self._complain(error)

    def known(self, identity: bytes) -> bytes | None:
        """What the server that is started so offered; see `SharedManifest`."""
        return self._known.get(self._handle(identity))

    async def keep(self, entries: Mapping[bytes, bytes | None]) -> list[bytes]:
        """Write down what is new, or that a server is as it was. See `SharedManifest`."""
        lacking = list[bytes]()
        try:
            for identity, data in entries.items():
                if not await self._keep_one(self._handle(identity), data):
                    lacking.append(identity)
        except StoreFailed as error:
            self._complain(error)
        return lacking

    async def _keep_one(self, handle: str, data: bytes | None) -> bool:
        """False: it is not there any more, and not known here."""
        known = self._known.get(handle)
        if data is None or data == known:
            if await self._store.renew(_KIND, handle, principal="", expires_in=KEPT_SECONDS):
                return True
            data = data or known  # it made room for others, or the server has lost its data
            if data is None:
                return False
        try:
            await self._store.put(_KIND, data, principal="", expires_in=KEPT_SECONDS, handle=handle)
            self._known[handle] = data
        except ValueTooLarge as error:
            self._complain(error)
        return True

    async def close(self) -> None:
        """End the connections."""
        await self._store.close()

    def _handle(self, identity: bytes) -> str:
        return hmac.digest(self._key, _USE + identity, "sha256").hex()[:32]

    def _complain(self, error: StoreFailed) -> None:
        if not self._has_complained:
            self._has_complained = True
            log.warning("what servers offer is not shared in the fleet", reason=str(error))
