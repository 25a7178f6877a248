"""All upstreams by name: started side by side, stopped side by side; and their further instances.

The first instance of a server is the one that lists, and usually the only one. Others come when a call needs them:
a session of the handshake era declares once what its client can be asked, so clients that can be asked different
things cannot share one, and a server may be configured to keep its clients apart (spec 2.3 of the project's notes).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

import anyio
from anyio.abc import TaskGroup

from mcpbridge.errors import Overloaded
from mcpbridge.interaction import NOTHING, Asker, Profile
from mcpbridge.logs import get_logger
from mcpbridge.model import Call
from mcpbridge.upstream.manifest import Manifest
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Observer, Upstream
from mcpbridge.wire.transport import Transport

__all__ = ["Pool"]

log = get_logger("mcpbridge.upstream")

YIELD_SECONDS = 0.02
"""Seconds until a call that gave way has left its session."""
FREE_SECONDS = 0.5
"""Seconds to wait for a session that another client uses, before one more is opened."""

_Key = tuple[str, Profile, object]
"""Server; what its client can be asked; whose it is (a client, a project), or which of those that all share."""


@dataclass(slots=True, eq=False)
class _Instance:
    """A further instance; without a key it is a spare, started but not yet opened."""

    upstream: Upstream
    key: _Key | None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Pool:
    """The upstreams of one bridge. Iterate `upstreams` for all of them, disabled ones left out."""

    def __init__(
        self,
        servers: Mapping[str, ServerSettings],
        make_transport: Callable[[str, ServerSettings], Transport],
        observer: Observer,
        *,
        client_info: dict[str, str],
        manifest: Manifest | None = None,
        warm_up: int = 2,
        revalidate: float = 86400,
    ) -> None:
        """`manifest` remembers what servers offered. Those it knows are started at their first use, and looked at in
        the background, `warm_up` at a time, when what it knows is older than `revalidate` seconds."""
        self._manifest, self._warm_up, self._revalidate = manifest, warm_up, revalidate
        self._make_transport, self._observer, self._client_info = make_transport, observer, client_info
        self.upstreams: dict[str, Upstream] = {
            name: self._make(name, settings) for name, settings in sorted(servers.items()) if not settings.disabled
        }
        self._others: dict[_Key, _Instance] = {}
        self._spares: dict[str, _Instance] = {}
        self._tasks: TaskGroup | None = None

    def everyone(self) -> Iterator[Upstream]:
        """The upstreams, and every further instance of them that is open."""
        yield from self.upstreams.values()
        for instance in list(self._others.values()):
            yield instance.upstream

    def instances(self, name: str) -> int:
        """How many instances of a server there are."""
        return (name in self.upstreams) + sum(key[0] == name for key in self._others)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep every upstream connected meanwhile; leaving ends them all and their processes."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for upstream in self.upstreams.values():
                tasks.start_soon(upstream.run, name=f"upstream {upstream.name}")
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    def works_on(self, call: Call) -> bool:
        """A server has the call, or runs it as a task; or the one that runs in its place."""
        while call.runs_as is not None:
            call = call.runs_as
        return call.begun == "task" or any(call in upstream.running for upstream in self.everyone())

    async def settled(self, seconds: float) -> bool:
        """Wait until every upstream is ready or has failed once. False when time was up before."""
        with anyio.move_on_after(seconds):
            for upstream in self.upstreams.values():
                while not upstream.has_settled:
                    await upstream.stepped()
            return True
        return False

    # -- instances

    async def serving(self, base: Upstream, client: Asker) -> Upstream:
        """The instance of a server that calls of this client go to; it is started if there is none.

        Raises:
            UpstreamUnavailable: the server is not there.
            Overloaded: it has as many instances as it may.
        """
        settings = base.settings
        if settings.share == "shared":
            return await self._shared(base, client)
        profile = NOTHING if settings.questions == "never" else client.profile
        if settings.share == "session":
            return self._other(base, profile, client.home) if client.home else base
        project = await client.project()
        if not project and (base.modern or profile is NOTHING):
            return base  # of no project, and the first session declares what such a client can be asked
        return self._other(base, profile, (client.principal, project))

    def expect(self, profile: Profile, view: str = "") -> None:
        """A client came that can be asked this: servers whose session is not open yet open it for such clients.

        `view`: the one server that the client sees; empty: all.
        """
        for upstream in self.upstreams.values():
            if view not in ("", upstream.name):
                continue
            is_settled = upstream.has_declared or upstream.has_served or upstream.profile is not NOTHING
            if not is_settled and upstream.is_shared and upstream.settings.questions == "auto":
                upstream.adopt(profile)

    def release(self, home: object) -> None:
        """A client is gone: instances that were its own end."""
        for key, instance in list(self._others.items()):
            if key[2] is home:
                del self._others[key]
                instance.scope.cancel()

    async def _shared(self, base: Upstream, client: Asker) -> Upstream:
        if base.session is None:
            await base.ready()  # until then its era is not known, and a modern server needs one session only
        if base.modern or base.settings.questions == "never":
            return base
        if client.profile is not base.profile and not base.has_served:
            base.adopt(client.profile)  # nobody used it yet: better another session than one more
        upstream = base
        if client.profile is not base.profile:
            upstream = self._other(base, client.profile, 0)
        patience_ends = asyncio.get_running_loop().time() + FREE_SECONDS
        while upstream.is_held_from(client):
            left = patience_ends - asyncio.get_running_loop().time()
            if left <= 0 or not await upstream.freed(left):  # most calls are short: another process is worth a moment
                found = self._of_the_kind(base, client)
                if found is None and client.give_way(base.name):
                    await anyio.sleep(YIELD_SECONDS)
                    found = self._of_the_kind(base, client)
                return found or upstream  # there it waits for its turn
        return upstream

    def _of_the_kind(self, base: Upstream, client: Asker) -> Upstream | None:
        """A further instance for clients like this one that nobody holds; None when there may be no more of them."""
        kind = base.name, client.profile
        for key, instance in self._others.items():
            if key[:2] == kind and not instance.upstream.is_held_from(client):
                return instance.upstream
        if self.instances(base.name) > base.settings.max_instances:
            return None  # a turn on one of them comes sooner than another process has started
        return self._other(base, client.profile, next(n for n in count(1) if (*kind, n) not in self._others))

    def _other(self, base: Upstream, profile: Profile, whose: object) -> Upstream:
        key = base.name, profile, whose
        if (known := self._others.get(key)) is not None:
            return known.upstream
        settings = base.settings
        if self._tasks is None or not self._has_room(base):
            raise Overloaded(
                f"Server '{base.name}' has {settings.max_instances} sessions for other kinds of clients "
                "(`max_instances`); another one is not opened"
            )
        log.info("another instance", upstream=base.name, declares=sorted(profile.capabilities(modern=True)))
        if settings.share != "shared":
            upstream = self._make(base.name, _in_project(settings, whose), profile=profile, home=whose, is_base=False)
            instance = self._start(upstream, key)
        else:
            instance = self._spares.pop(base.name, None)
            if instance is None:
                instance = self._start(self._make(base.name, settings, profile=profile, is_base=False), key)
            else:
                instance.key = key
                instance.upstream.assign(profile)
            self._keep_spare(base)
        self._others[key] = instance
        instance.upstream.wanted.adopt_log_level(base.wanted)
        return instance.upstream

    def _has_room(self, base: Upstream) -> bool:
        """One more instance may be opened. Where clients share, the one that is idle longest is closed for it."""
        if self.instances(base.name) <= base.settings.max_instances:
            return True
        idle = [
            (instance.upstream.idle_since, number, key)
            for number, (key, instance) in enumerate(self._others.items())
            if key[0] == base.name and base.is_shared and instance.upstream.is_idle
        ]
        if not idle:
            return False
        _, _, key = min(idle)
        self._others.pop(key).scope.cancel()
        return True

    def _keep_spare(self, base: Upstream) -> None:
        """A program that is used by different kinds of clients: start one ahead for the next kind.

        A model waits for its first call meanwhile, and programs take seconds to start.
        """
        settings = base.settings
        if settings.command is not None and self.instances(base.name) < settings.max_instances:
            upstream = self._make(base.name, settings, is_base=False, is_spare=True)
            self._spares[base.name] = self._start(upstream, None)

    def _start(self, upstream: Upstream, key: _Key | None) -> "_Instance":
        assert self._tasks is not None
        instance = _Instance(upstream, key)
        self._tasks.start_soon(self._own, instance, name=f"upstream {upstream.name}, another")
        return instance

    async def _own(self, instance: "_Instance") -> None:
        """Own an instance until it has been idle for long enough, or is released."""
        upstream = instance.upstream
        with instance.scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(upstream.run)
                await upstream.idle(upstream.settings.instance_idle)
                self._forget(instance)  # first: a call that comes now gets a new one
                tasks.cancel_scope.cancel()
        self._forget(instance)

    def _forget(self, instance: "_Instance") -> None:
        name, key = instance.upstream.name, instance.key
        if key is not None and self._others.get(key) is instance:
            del self._others[key]
        elif self._spares.get(name) is instance:
            del self._spares[name]

    def _make(
        self,
        name: str,
        settings: ServerSettings,
        *,
        is_base: bool = True,
        profile: Profile = NOTHING,
        home: object = None,
        is_spare: bool = False,
    ) -> Upstream:
        return Upstream(
            name,
            settings,
            self._make_transport(name, settings),
            self._observer,
            client_info=self._client_info,
            is_base=is_base,
            profile=profile,
            home=home,
            is_spare=is_spare,
        )


def _in_project(settings: ServerSettings, whose: object) -> ServerSettings:
    """A program that is started for a project works in it, unless its directory is configured."""
    if not isinstance(whose, tuple) or settings.command is None or settings.cwd is not None:
        return settings
    _, project = cast("tuple[str, str]", whose)
    parts = urlsplit(project)
    path = Path(unquote(parts.path))
    return settings.model_copy(update={"cwd": str(path)}) if parts.scheme == "file" and path.is_dir() else settings
