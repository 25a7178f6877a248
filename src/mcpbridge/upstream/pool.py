"""All upstreams by name: started side by side, stopped side by side, and changed while they run.

The first instance of a server is the one that lists (`bases`), and usually the only one. Others come when a call needs
them (`further`); which is right for a client is decided in `choosing`.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress

import anyio

from mcpbridge.errors import Overloaded
from mcpbridge.interaction import NOTHING, Asker, Profile
from mcpbridge.logs import get_logger
from mcpbridge.model import Call
from mcpbridge.upstream.bases import Bases, OfThoseThatCount
from mcpbridge.upstream.choosing import Choosing
from mcpbridge.upstream.further import Further, Instance, Key
from mcpbridge.upstream.habits import Habits
from mcpbridge.upstream.manifest import Manifest
from mcpbridge.upstream.reconfiguring import Changed, changes
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Observer, Upstream
from mcpbridge.upstream.warming import Warming
from mcpbridge.wire.transport import Transport

__all__ = ["Pool"]

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

    async def serving(self, base: Upstream, client: Asker) -> Upstream:
        """The instance of a server that calls of this client go to; it is started if there is none.

        Raises:
            UpstreamUnavailable: the server is not there, or needs a project that the client has not.
            Overloaded: it has as many instances as it may.
        """
        return await self._choosing.serving(base, client)

    def expect(self, profile: Profile, view: str = "", *, project: str = "", principal: str = "") -> None:
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
        profile: Profile = NOTHING,
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
