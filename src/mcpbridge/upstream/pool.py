"""Look in the background whether servers still offer what is remembered of them, a few at a time.

What is idle when the bridge starts is listed from the manifest. Servers with a `url` are connected here all the same,
as their own list may change at any time and a connection costs little; a program is started only when what is
remembered of it is old, and ends again soon if nobody uses it. Nobody waits for any of this: a call starts the server
that it needs by itself, whatever is under way here.

All upstreams by name: started side by side, stopped side by side, and changed while they run.

The first instance of a server is the one that lists (`bases`), and usually the only one. Others come when a call needs
them (`further`); which is right for a client is decided in `choosing`.

The first seconds: who asks for something that a starting server may have waits for it, once and not for long.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress

import anyio

from mcpbridge.base.errors import Overloaded
from mcpbridge.base.log import get_logger
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities, Elicitor
from mcpbridge.core.model import Call
from mcpbridge.protocol.transport import Transport
from mcpbridge.upstream.concurrency import Habits, WaitingRoom
from mcpbridge.upstream.connection.connection import LIST_SECONDS
from mcpbridge.upstream.instances.on_demand import Further, Instance, Key
from mcpbridge.upstream.instances.primary import Bases, Changed, Choosing, OfThoseThatCount, changes
from mcpbridge.upstream.manifest import Manifest
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Observer, Upstream

FIRST_SECONDS = 0.5
"""Seconds after the start of the bridge: its first client is answered before."""
AGAIN_SECONDS = 60.0
"""Seconds between looks for servers that have become due, or have come with another configuration."""
LEAST_SECONDS = 3600.0
"""Seconds between two starts of the same program, whatever it says of its age; a server may never come up."""


class Warming:
    """Starts what is idle and due."""

    def __init__(self, upstreams: Mapping[str, Upstream], *, at_once: int, revalidate: float) -> None:
        """`at_once`: how many may be starting; 0: none ever. `revalidate`: see `DaemonSettings`."""
        self._upstreams, self._at_once, self._revalidate = upstreams, at_once, revalidate
        self._tried: dict[str, tuple[Upstream, float]] = {}
        """By name, which instance was started, and the loop time."""

    async def run(self) -> None:
        """Do it until cancelled."""
        if not self._at_once:
            return
        await anyio.sleep(FIRST_SECONDS)
        while True:
            await self._round()
            await anyio.sleep(AGAIN_SECONDS)

    async def _round(self) -> None:
        """Start everything that is due now, those with a URL first."""
        waiting = iter(sorted(self._due(), key=lambda upstream: (upstream.settings.url is None, upstream.seen)))

        async def take() -> None:
            for upstream in waiting:
                await self._start(upstream)

        async with anyio.create_task_group() as tasks:
            for _ in range(self._at_once):
                tasks.start_soon(take)

    async def _start(self, upstream: Upstream) -> None:
        self._tried[upstream.name] = upstream, asyncio.get_running_loop().time()
        with anyio.move_on_after(upstream.settings.init_timeout + LIST_SECONDS):
            await upstream.look()

    def _due(self) -> list[Upstream]:
        return [upstream for upstream in self._upstreams.values() if self._is_due(upstream)]

    def _is_due(self, upstream: Upstream) -> bool:
        if upstream.status.state != "idle":
            return False
        tried, at = self._tried.get(upstream.name, (None, 0.0))
        if tried is upstream and asyncio.get_running_loop().time() - at < max(self._revalidate, LEAST_SECONDS):
            return False
        return upstream.settings.url is not None or time.time() - upstream.seen >= self._revalidate


log = get_logger("mcpbridge.upstream")


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
        """`manifest` remembers what servers offered, so that they are started at their first use.

        They are looked at in the background, `warm_up` at a time, when that is older than `revalidate` seconds.
        """
        self._manifest, self._warm_up, self._revalidate = manifest, warm_up, revalidate
        self._make_transport, self._client_info = make_transport, client_info
        self._habits: dict[str, Habits] = {}
        """Of each server, where there is no manifest to keep them."""
        self._bases = Bases(_enabled(servers), self._base)
        self._observer: Observer = OfThoseThatCount(observer, self._bases.counts)
        self._further = Further(self._another)
        self._choosing = Choosing(self._bases, self._further)
        self.upstreams: Mapping[str, Upstream] = self._bases.upstreams
        """Those that list, by name and in this order; always the same object."""
        for name in self._bases.servers:
            self._bases.install(name)

    def everyone(self) -> Iterator[Upstream]:
        """The upstreams, and every further instance of them that is open."""
        yield from list(self.upstreams.values())
        for instance in self._further:
            yield instance.upstream

    def instances(self, name: str) -> int:
        """How many instances of a server there are."""
        return (name in self.upstreams) + self._further.count(name)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep every upstream connected meanwhile; leaving ends them all and their processes."""
        failure: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            self._further.run_in(tasks)
            self._bases.run_in(tasks)
            if self._manifest is not None:
                tasks.start_soon(self._manifest.run)
                tasks.start_soon(Warming(self.upstreams, at_once=self._warm_up, revalidate=self._revalidate).run)
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - raised again below; the group would wrap it in its own
                failure = error
            finally:
                self._further.run_in(None)
                self._bases.run_in(None)
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    def works_on(self, call: Call) -> bool:
        """A server has the call, or runs it as a task; or the one that runs in its place."""
        while call.runs_as is not None:
            call = call.runs_as
        everyone = (*self.everyone(), *self._bases.left)
        return call.begun == "task" or any(call in upstream.running for upstream in everyone)

    async def settled(self, seconds: float) -> bool:
        """Wait until every upstream is ready or has failed once, as configured now. False when time was up before."""
        with anyio.move_on_after(seconds):
            for name in list(self.upstreams):
                await self._bases.succeeded(name)
                while (upstream := self.upstreams.get(name)) is not None and not upstream.has_settled:
                    await upstream.stepped()
            return True
        return False

    # -- clients

    async def serving(self, base: Upstream, client: Elicitor) -> Upstream:
        """The instance of a server that calls of this client go to; it is started if there is none.

        Raises:
            UpstreamUnavailable: the server is not there, or needs a project that the client has not.
            Overloaded: it has as many instances as it may.
        """
        return await self._choosing.serving(base, client)

    def expect(self, profile: ClientCapabilities, view: str = "", *, project: str = "", principal: str = "") -> None:
        """A client came that can be asked this, and works in this project: what is not open yet is opened for such.

        `view`: the one server that the client sees; empty: all. `project`: its URI; empty: the client has none, or it
        is not known yet.
        """
        self._choosing.expect(profile, view, project, principal)

    def wants_project(self, view: str = "") -> bool:
        """A server that the client sees waits for a project to start in."""
        return any(self._bases.waits(upstream) for name, upstream in self.upstreams.items() if view in ("", name))

    def release(self, home: object) -> None:
        """A client is gone: instances that were its own end."""
        self._further.release(home)

    # -- other settings

    async def configure(self, servers: Mapping[str, ServerSettings]) -> Changed:
        """Have these servers from now on; returns what became of each. Those whose settings are equal notice nothing.

        One that is removed gets no new calls, finishes those that it has, and ends; nobody waits for that. So does one
        that is replaced, if it works: once its successor is up, or could not be started.
        """
        before, after = self._bases.servers, _enabled(servers)
        self._bases.servers = after
        changed = changes(before, after)
        for name in changed.kept:
            if before[name] != after[name]:
                self._tell_settings(name)
        for name in changed.removed:
            self._bases.remove(name)
            for instance in self._further.take(name):
                self._bases.leave(instance)
        for name in changed.replaced:
            self._replace(name, stays=before[name].share == after[name].share)
        for name in changed.added:
            self._bases.install(name)
        self._bases.sort()
        if changed.added or changed.removed or changed.replaced:
            log.info("servers changed", added=changed.added, removed=changed.removed, replaced=changed.replaced)
        return changed

    def _tell_settings(self, name: str) -> None:
        """Nothing of the connection is other than it was."""
        for instance in (*self._bases.of(name), *self._further.of(name)):
            instance.upstream.configure(self._bases.settings(name, instance.project))

    def _replace(self, name: str, *, stays: bool) -> None:
        """`stays`: its clients share it as they did, so it stays in its project."""
        before, settings = self.upstreams[name], self._bases.servers[name]
        project, home = (self._bases.project(name), before.home) if stays else ("", None)
        further = self._further.replaceable(name)

        def adopt(upstream: Upstream) -> None:
            if settings.share != "session" and settings.questions == "auto":
                of_clients = before.profile.without(before.habits.quiet)
                upstream.adopt(upstream.habits.declared(of_clients))

        def installed(base: Upstream) -> None:
            for instance in further:
                self._replace_further(instance, base, stays=stays)

        is_able = not self._bases.settings(name, project).unavailable
        if stays and is_able and before.session is not None:
            self._bases.succeed(name, project, home=home, before_start=adopt, installed=installed)
        else:
            installed(self._bases.install(name, project, home=home, before_start=adopt))

    def _replace_further(self, instance: Instance, base: Upstream, *, stays: bool) -> None:
        if instance.key is None or not self._further.take_one(instance):
            return
        if instance.upstream.wanted.uris:
            heir = base
            if stays and not base.is_shared:  # its subscribers hear on of what is their own
                with suppress(Overloaded):
                    heir = self._further.opened(base, instance.key, instance.project)
            instance.upstream.wanted.hand_over(heir.wanted)
        self._bases.leave(instance)

    # -- making

    def _base(self, name: str, project: str, *, home: object) -> Upstream:
        return self._make(name, project, is_base=True, home=home)

    def _another(self, key: Key | None, name: str, project: str) -> Instance:
        if key is None:
            return Instance(self._make(name, project, is_spare=True), project)
        _, profile, whose, _ = key
        home = None if self._bases.servers[name].share == "shared" else whose
        return Instance(self._make(name, project, profile=profile, home=home), project, key)

    def _make(
        self,
        name: str,
        project: str,
        *,
        is_base: bool = False,
        profile: ClientCapabilities = NO_CAPABILITIES,
        home: object = None,
        is_spare: bool = False,
    ) -> Upstream:
        settings = self._bases.settings(name, project)
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
            memory=self._manifest.of(name, self._bases.servers[name]) if self._manifest and is_base else None,
            habits=self._habits_of(name),
        )

    def _habits_of(self, name: str) -> Habits:
        if self._manifest is not None:
            return self._manifest.habits(name, self._bases.servers[name])
        return self._habits.setdefault(name, Habits())


def _enabled(servers: Mapping[str, ServerSettings]) -> dict[str, ServerSettings]:
    return {name: settings for name, settings in sorted(servers.items()) if not settings.disabled}


_PLACES = 1000
"""Requests that may wait at a time; each costs some 7 KB meanwhile."""


class StartupWait:
    """Over when every upstream is ready or has failed once, or when its time is up; then nobody waits any more."""

    def __init__(
        self,
        pool: Pool,
        seconds: float,
        loaded: asyncio.Event | None = None,
        others: Callable[[], bool] = lambda: True,
    ) -> None:
        """`loaded`: set once all that was kept of earlier runs is read that listings are made with.

        `others`: whether all others that offer something have settled, too.
        """
        self._others = others
        self._pool, self._loaded = pool, loaded
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + seconds
        self._news = asyncio.Event()
        self._room = WaitingRoom("The bridge is starting", places=_PLACES)
        self.is_over = False

    def noticed(self) -> None:
        """An upstream, or another that offers tools, changed its state."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def settled(self) -> None:
        """Return once it is over. Who comes when too many wait gets the catalog as it is, and its changes later."""
        with suppress(Overloaded):
            while await self.more():
                pass

    async def more(self) -> bool:
        """Return when an upstream has changed its state; False when it is over.

        Raises:
            Overloaded: too many wait already.
        """
        left = self._ends - self._loop.time()
        has_settled = self._others() and all(upstream.has_settled for upstream in self._pool.upstreams.values())
        news = self._news if not has_settled else self._loaded
        if self.is_over or left <= 0 or news is None or (has_settled and news.is_set()):
            self.is_over = True
            return False
        async with self._room:
            with anyio.move_on_after(left):
                await news.wait()
        return True
