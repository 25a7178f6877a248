"""Sessions with legacy servers over HTTP that are one client's alone, written down for the bridge that has it next.

`share = "session"` gives each client a session of its own at the server. When the client's session moves to another
bridge, that one continues the server's session as well; see `upstream/transports/continued_sessions.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256

import msgspec

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import StoreFailed, ValueTooLarge
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.client import Client
from mcpbridge.storage.store import Store
from mcpbridge.upstream.transports.continued_sessions import KeptSession, SessionKeeper

log = get_logger("mcpbridge.fleet")

_KIND = "upstream-session"
_KEPT = 7 * 86400.0
"""Seconds. A server forgets an unused session long before."""
_MOST_BYTES = 32 << 20
_AGAIN_AFTER = 1.0
"""Seconds between two attempts to write down what the store did not take."""
_sessions = msgspec.msgpack.Decoder(KeptSession)


class UpstreamSessions:
    """Those of all clients of this bridge."""

    def __init__(self, store: Store, tasks: OwnedTasks) -> None:
        """`tasks` write them down.

        `store`: its methods fail while it is away (`LazyStore.shared`), so that no bridge has one of its own.
        """
        self._store, self._tasks = store, tasks
        store.bound(_KIND, _MOST_BYTES)

    def keeper(self, server: str, home: object, project: str) -> SessionKeeper | None:
        """Where the session of this client at this server is written down; None: it moves to no other bridge."""
        if not isinstance(home, Client) or home.modern or home.front != "http" or not home.conversation:
            return None
        return _Keeper(self._store, self._tasks, home, f"{home.conversation}\n{server}\n{project}")


class _Keeper:
    """See `SessionKeeper`."""

    def __init__(self, store: Store, tasks: OwnedTasks, client: Client, name: str) -> None:
        self._store, self._tasks, self._client = store, tasks, client
        self._handle = sha256(name.encode()).hexdigest()
        self._order = asyncio.Lock()
        self._latest = ""
        """The session that is to be written down."""

    @property
    def is_handed_on(self) -> bool:
        return self._client.is_handed_on

    async def load(self) -> KeptSession | None:
        try:
            return await self._load()
        except (StoreFailed, msgspec.MsgspecError) as error:
            log.warning("a session with a server cannot be continued: a new one begins", reason=str(error))
            return None

    async def _load(self) -> KeptSession | None:
        encoded = await self._store.get(_KIND, self._handle, principal=self._client.principal)
        return None if encoded is None else _sessions.decode(encoded)

    def keep(self, session: KeptSession) -> None:
        self._latest = session.id
        self._tasks.spawn(self._until_done(session.id, lambda: self._keep(session)))

    def forget(self, id_: str) -> None:
        self._latest = ""
        self._tasks.spawn(self._until_done("", lambda: self._forget(id_)))

    async def _until_done(self, latest: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do it as soon as the store takes it, unless something else has become of the session."""
        is_noted = False
        async with self._order:  # what is forgotten must not come after what is kept next
            while self._latest == latest and not (latest and self.is_handed_on):
                try:
                    await work()
                except ValueTooLarge as error:
                    log.warning("a session with a server ends with this bridge", reason=str(error))
                except StoreFailed as error:
                    if not is_noted:
                        what = "a session with a server is not written down yet: until then it ends with this bridge"
                        log.warning(what, reason=str(error))
                    is_noted = True
                    await asyncio.sleep(_AGAIN_AFTER)
                    continue
                except msgspec.MsgspecError:
                    pass  # what is there is nothing that could be continued
                return

    async def _keep(self, session: KeptSession) -> None:
        body = msgspec.msgpack.encode(session)
        await self._store.put(_KIND, body, principal=self._client.principal, expires_in=_KEPT, handle=self._handle)

    async def _forget(self, id_: str) -> None:
        kept = await self._load()
        if kept is not None and kept.id == id_:
            await self._store.drop(_KIND, self._handle, principal=self._client.principal)
