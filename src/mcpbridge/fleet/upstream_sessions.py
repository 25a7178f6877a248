"""Sessions with legacy servers over HTTP that are one client's alone, written down for the bridge that has it next.

`share = "session"` gives each client a session of its own at the server. When the client's session moves to another
bridge, that one continues the server's session as well; see `upstream/transports/continued_sessions.py`.
"""

import asyncio
from collections.abc import Awaitable
from hashlib import sha256

import msgspec

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import StoreFailed, ValueTooLarge
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.client import Client
from mcpbridge.fleet.sessions import FleetSessions
from mcpbridge.storage.store import Store
from mcpbridge.upstream.transports.continued_sessions import KeptSession, SessionKeeper

log = get_logger("mcpbridge.fleet")

_KIND = "upstream-session"
_KEPT = 7 * 86400.0
"""Seconds. A server forgets an unused session long before."""
_MOST_BYTES = 32 << 20
_sessions = msgspec.msgpack.Decoder(KeptSession)


class UpstreamSessions:
    """Those of all clients of this bridge."""

    def __init__(self, store: Store, sessions: FleetSessions) -> None:
        self._store, self._sessions = store, sessions
        store.bound(_KIND, _MOST_BYTES)

    def keeper(self, server: str, home: object, project: str) -> SessionKeeper | None:
        """Where the session of this client at this server is written down; None: it moves to no other bridge."""
        if not isinstance(home, Client) or home.modern or home.front != "http" or not home.conversation:
            return None
        return _Keeper(self._store, self._sessions, home, f"{home.conversation}\n{server}\n{project}")


class _Keeper:
    """See `SessionKeeper`."""

    def __init__(self, store: Store, sessions: FleetSessions, client: Client, name: str) -> None:
        self._store, self._sessions = store, sessions
        self._principal, self._session = client.principal, client.conversation.encode("latin-1")
        self._handle = sha256(name.encode()).hexdigest()
        self._order = asyncio.Lock()

    @property
    def is_handed_on(self) -> bool:
        return self._sessions.has_handed_on(self._session)

    async def load(self) -> KeptSession | None:
        try:
            encoded = await self._store.get(_KIND, self._handle, principal=self._principal)
            return None if encoded is None else _sessions.decode(encoded)
        except (StoreFailed, msgspec.MsgspecError) as error:
            log.warning("a session with a server cannot be continued: a new one begins", reason=str(error))
            return None

    def keep(self, session: KeptSession) -> None:
        self._spawn(self._keep(session))

    def forget(self, id_: str) -> None:
        self._spawn(self._forget(id_))

    def _spawn(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            async with self._order:  # what is forgotten must not come after what is kept next
                try:
                    await work
                except (StoreFailed, ValueTooLarge) as error:
                    log.warning("a session with a server ends with this bridge", reason=str(error))

        tasks: OwnedTasks = self._sessions.tasks
        tasks.spawn(run())

    async def _keep(self, session: KeptSession) -> None:
        body = msgspec.msgpack.encode(session)
        await self._store.put(_KIND, body, principal=self._principal, expires_in=_KEPT, handle=self._handle)

    async def _forget(self, id_: str) -> None:
        kept = await self.load()
        if kept is not None and kept.id == id_:
            await self._store.drop(_KIND, self._handle, principal=self._principal)
