"""The instance of each server that lists: installed, replaced by another one, moved to a project.

One that is replaced gets no new calls, finishes those that it has, and ends; nobody waits for that. Where it works, its
successor is started beside it and takes its place once it is up, so that no call waits for that start.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol
from weakref import WeakSet

import anyio
from anyio.abc import TaskGroup

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.upstream.instances.on_demand import Instance
from mcpbridge.upstream.projects import WAITS_FOR_PROJECT, directory_of, place_of
from mcpbridge.upstream.session.listings import Lists
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Observer, Upstream

CALM_SECONDS = 0.05
"""Seconds without a call after which an instance that gets no new ones is taken to have finished the old ones. Those
that wait for the end of another begin well within it."""


class _Make(Protocol):
    def __call__(self, name: str, project: str, *, home: object) -> Upstream: ...


class PrimaryInstances:
    """The instances that list, by name."""

    def __init__(self, servers: Mapping[str, ServerSettings], make: _Make) -> None:
        self.servers = servers
        """As configured, with `${PROJECT_ROOT}`."""
        self.upstreams: dict[str, Upstream] = {}
        """One dictionary for ever: others hold on to it."""
        self.left = WeakSet[Upstream]()
        """Those that finish their calls and get no new ones."""
        self._coming: dict[str, _Coming] = {}
        self._make = make
        self._running: dict[str, Instance] = {}
        self._tasks: TaskGroup | None = None

    def run_in(self, tasks: TaskGroup | None) -> None:
        """Who owns their tasks from now on; None: nobody."""
        self._tasks = tasks
        for instance in self._running.values():
            self._run(instance)

    def settings(self, name: str, project: str) -> ServerSettings:
        """With which a server is started for a project; empty: for none."""
        settings = self.servers[name]
        if settings.needs_project and not directory_of(project):
            return settings.model_copy(update={"unavailable": WAITS_FOR_PROJECT})
        return settings.in_project(project)

    def there(self, base: Upstream) -> Upstream:
        """The one that lists now: it may have been replaced while something was waited for.

        Raises:
            UpstreamUnavailable: there is none any more.
        """
        if base.name not in self.upstreams:
            raise UpstreamUnavailable(base.name, "it is not configured any more")
        return self.upstreams[base.name]

    # -- projects

    def project(self, name: str) -> str:
        """URI of the project that it was started for; empty: for none."""
        return self._running[name].project

    def waits(self, base: Upstream) -> bool:
        """It cannot start before there is a project."""
        return self.servers[base.name].needs_project and not self.project(base.name)

    def of(self, name: str) -> Iterator[Instance]:
        """The one that lists, and the one that is to come in its place."""
        yield self._running[name]
        if (coming := self._coming.get(name)) is not None:
            yield coming.instance

    def may_move(self, base: Upstream) -> bool:
        """It may be started anew for a project: nobody works with it, or it does not work."""
        if base.settings.share != "project" and not self.waits(base):
            return False
        is_free = not self.project(base.name) and not base.usage.has_served
        return is_free or (base.status.state == "failed" and not base.running)

    def move(self, base: Upstream, project: str, principal: str) -> Upstream:
        """Have it work in this project, if it can; returns the one that lists from now on."""
        if self.servers[base.name].needs_project and not directory_of(project):
            return base
        home = (principal, place_of(project)) if base.settings.share == "project" else None
        return self.install(base.name, project, home=home)

    # -- coming and going

    def install(
        self,
        name: str,
        project: str = "",
        *,
        home: object = None,
        before_start: Callable[[Upstream], None] | None = None,
    ) -> Upstream:
        """From now on a new instance is the one that lists. The one before, if any, finishes what it has to do."""
        self._give_up(name)
        instance = Instance(self._make(name, project, home=home), project)
        if before_start is not None:
            before_start(instance.upstream)
        self._put(instance)
        self._run(instance)
        return instance.upstream

    def succeed(
        self,
        name: str,
        project: str,
        *,
        home: object,
        before_start: Callable[[Upstream], None],
        installed: Callable[[Upstream], None],
    ) -> None:
        """Start a new instance beside the one that lists, and install it once it is ready or could not be started.

        Until then calls go to the one before, and nobody hears of the new one. `installed` is called with it right
        after. Another one that was to come is given up for it.
        """
        self._give_up(name)
        instance = Instance(self._make(name, project, home=home), project)
        before_start(instance.upstream)
        coming = self._coming[name] = _Coming(instance, installed)
        self._run(instance)
        assert self._tasks is not None
        self._tasks.start_soon(self._install_when_up, coming, name=f"upstream {name}, to come")

    def counts(self, upstream: Upstream) -> bool:
        """What this one says of itself is said of the server: it neither was replaced nor is still to come."""
        coming = self._coming.get(upstream.name)
        return upstream not in self.left and (coming is None or coming.instance.upstream is not upstream)

    async def succeeded(self, name: str) -> None:
        """Return when no other instance is to come in place of the one that lists."""
        while (coming := self._coming.get(name)) is not None:
            await coming.is_over.wait()

    def remove(self, name: str) -> None:
        """There is no such server any more."""
        self._give_up(name)
        del self.upstreams[name]
        self.leave(self._running.pop(name))

    def sort(self) -> None:
        """By name: in this order they are listed."""
        ordered = sorted(self.upstreams.items())
        self.upstreams.clear()
        self.upstreams.update(ordered)

    def leave(self, instance: Instance) -> None:
        """Let an instance finish its calls, and end it then. What was wanted of it besides is forgotten."""
        instance.upstream.wanted.forget()
        if self._tasks is not None:
            self.left.add(instance.upstream)
            self._tasks.start_soon(self._finish, instance, name=f"upstream {instance.upstream.name}, ending")

    def _put(self, instance: Instance) -> None:
        name = instance.upstream.name
        before = self._running.get(name)
        self._running[name] = instance
        self.upstreams[name] = instance.upstream
        if before is not None:
            before.upstream.wanted.hand_over(instance.upstream.wanted)
            self.leave(before)

    async def _install_when_up(self, coming: "_Coming") -> None:
        upstream = coming.instance.upstream
        with coming.waiting, anyio.move_on_after(upstream.settings.init_timeout):
            await upstream.tried()
        if coming.waiting.cancel_called:
            return
        del self._coming[upstream.name]
        self._put(coming.instance)
        upstream.announce()
        coming.installed(upstream)
        coming.is_over.set()

    def _give_up(self, name: str) -> None:
        """What was to come is not wanted any more."""
        if (coming := self._coming.pop(name, None)) is not None:
            coming.waiting.cancel()
            coming.instance.scope.cancel()
            coming.is_over.set()

    def _run(self, instance: Instance) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(self._live, instance, name=f"upstream {instance.upstream.name}")

    async def _live(self, instance: Instance) -> None:
        with instance.scope:
            await instance.upstream.run()

    async def _finish(self, instance: Instance) -> None:
        try:
            with anyio.move_on_after(longest_call(instance.upstream.settings)):
                await instance.upstream.usage.idle(CALM_SECONDS)
                while instance.upstream.connection.waiting:
                    await anyio.sleep(CALM_SECONDS)
                    await instance.upstream.usage.idle(CALM_SECONDS)
        finally:
            instance.scope.cancel()


class _Coming:
    """A successor, and who waits for it."""

    def __init__(self, instance: Instance, installed: Callable[[Upstream], None]) -> None:
        self.instance, self.installed = instance, installed
        self.waiting = anyio.CancelScope()
        self.is_over = anyio.Event()
        """It was installed, or given up."""


class CurrentInstances:
    """An `Observer` that forwards everything to another one, except what instances that do not count report."""

    def __init__(self, observer: Observer, counts: Callable[[Upstream], bool]) -> None:
        self._observer, self._counts = observer, counts
        self.resource_updated, self.logged = observer.resource_updated, observer.logged
        self.elicitation_completed, self.beside = observer.elicitation_completed, observer.beside
        self.introduced = observer.introduced
        self.on_changed: Callable[[str], object] = lambda name: None
        """Called with the name of each server whose lists are others than before, since it announced that."""
        self._lists: dict[str, Lists] = {}

    def offered(self, upstream: Upstream, lists: Lists) -> None:
        """See `Observer`."""
        if self._counts(upstream):
            before, self._lists[upstream.name] = self._lists.get(upstream.name), lists
            self._observer.offered(upstream, lists)
            if upstream.listings.is_relisting and before is not None and before != lists:
                self.on_changed(upstream.name)

    def stepped(self, upstream: Upstream) -> None:
        """See `Observer`."""
        if self._counts(upstream):
            self._observer.stepped(upstream)


def longest_call(settings: ServerSettings) -> float:
    """Seconds that the longest call of a server may take."""
    own = (max(tool.call_timeout or 0.0, tool.max_call_timeout or 0.0) for tool in settings.tool.values())
    return max(settings.timeouts.total, *own, 0.0)
