"""What becomes of a running server when its settings change. Pure; `pool` does it.

A server keeps its process and its session if nothing that it was started, reached or is guarded with has changed. Every
setting is in one of the two lists here (a test sees to that), so that whoever adds one decides.

The instance of each server that lists: installed, replaced by another one, moved to a project.

One that is replaced gets no new calls, finishes those that it has, and ends; nobody waits for that. Where it works, its
successor is started beside it and takes its place once it is up, so that no call waits for that start.

Which instance of a server a client's calls go to.

A session of the handshake era declares once what its client can be asked (MCP 2025-11-25, Lifecycle, Capability
Negotiation), so clients that can be asked different things cannot share one, and a server may be configured to keep its
clients apart.

Where the clients of a project share, the instance that lists belongs to a project as well, if it can: to that of the
first client that comes, so that one project is one process. A server that cannot start without a project waits for it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol
from weakref import WeakSet

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities, Elicitor
from mcpbridge.upstream.instances.on_demand import Further, Instance
from mcpbridge.upstream.instances.projects import WAITS_FOR_PROJECT, directory_of, is_there, place_of, told_elsewhere
from mcpbridge.upstream.session.listings import Lists
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Observer, Upstream

KEEPS = frozenset(
    {
        # What is offered of it: the catalog and the policy are made anew with the settings.
        *("tools", "resources", "prompts", "tool", "title", "tags", "trusted"),
        # How its calls are treated before they come to it (`ToolOptions`, the stages of the way).
        *("permission", "risk", "read_only", "destructive", "idempotent", "arguments", "inject_defaults", "late"),
        *("retry", "cache", "cache_scope", "side_effects", "log_content", "results", "rate_limit"),
        # Asked anew each time that another instance is opened, or has nothing to do.
        *("max_instances", "instance_idle"),
        # What the traffic of a running server adopts.
        *("call_timeout", "max_call_timeout"),
    }
)
"""Settings of which the connection and the traffic on it know nothing, or which they go on with (`configure`)."""

REPLACES = frozenset(
    {
        # What it is started with, or reached by.
        *("command", "args", "env", "inherit_env", "cwd", "project_texts", "memory_limit", "sandbox"),
        *("url", "headers", "auth", "tls", "proxy", "transport"),
        # What is agreed with it, and who may share it.
        *("era", "questions", "roots", "share", "unavailable"),
        # What the traffic and the care for its connection are set up with.
        *("init_timeout", "ping_interval", "max_concurrent", "max_queued"),
        *("queue_timeout", "breaker", "start", "idle_stop"),
        # One that is disabled is not there: it counts as removed.
        "disabled",
    }
)
"""Settings with which it is another server, or its connection another one."""


class Changed(Struct, frozen=True):
    """What became of the servers, each by name, in order."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    """They are started anew; what they offered before stands until they have listed."""
    kept: tuple[str, ...] = ()
    """Untouched, whether or not something else was configured about them."""


def changes(before: Mapping[str, ServerSettings], after: Mapping[str, ServerSettings]) -> Changed:
    """What leads from one set of servers to another; those that are disabled are in neither."""
    both = sorted(before.keys() & after.keys())
    replaced = tuple(name for name in both if _is_another(before[name], after[name]))
    return Changed(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        replaced=replaced,
        kept=tuple(name for name in both if name not in replaced),
    )


def _is_another(before: ServerSettings, after: ServerSettings) -> bool:
    return before != after and any(getattr(before, name) != getattr(after, name) for name in REPLACES)


def longest_call(settings: ServerSettings) -> float:
    """Seconds that the longest call of a server may take."""
    own = (max(tool.call_timeout or 0.0, tool.max_call_timeout or 0.0) for tool in settings.tool.values())
    return max(settings.timeouts.total, *own, 0.0)


CALM_SECONDS = 0.05
"""Seconds without a call after which an instance that gets no new ones is taken to have finished the old ones. Those
that wait for the end of another begin well within it."""


class _Make(Protocol):
    def __call__(self, name: str, project: str, *, home: object) -> Upstream: ...


class Bases:
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
        is_free = not self.project(base.name) and not base.has_served
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
        upstream.tell()
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
                await instance.upstream.idle(CALM_SECONDS)
                while instance.upstream.is_awaited:
                    await anyio.sleep(CALM_SECONDS)
                    await instance.upstream.idle(CALM_SECONDS)
        finally:
            instance.scope.cancel()


class _Coming:
    """A successor, and who waits for it."""

    def __init__(self, instance: Instance, installed: Callable[[Upstream], None]) -> None:
        self.instance, self.installed = instance, installed
        self.waiting = anyio.CancelScope()
        self.is_over = anyio.Event()
        """It was installed, or given up."""


class OfThoseThatCount:
    """An `Observer` that tells another one everything but what those say of themselves that do not count."""

    def __init__(self, observer: Observer, counts: Callable[[Upstream], bool]) -> None:
        self._observer, self._counts = observer, counts
        self.resource_updated, self.logged = observer.resource_updated, observer.logged
        self.elicitation_completed, self.beside = observer.elicitation_completed, observer.beside

    def offered(self, upstream: Upstream, lists: Lists) -> None:
        """See `Observer`."""
        if self._counts(upstream):
            self._observer.offered(upstream, lists)

    def stepped(self, upstream: Upstream) -> None:
        """See `Observer`."""
        if self._counts(upstream):
            self._observer.stepped(upstream)


YIELD_SECONDS = 0.02
"""Seconds until a call that gave way has left its session."""
FREE_SECONDS = 0.5
"""Seconds without the end of a call on a session that another client uses, after which one more is opened."""
FREE_SHARE = 0.5
"""Share of the time that a call may wait for its place, after which one more is opened though calls come and go."""

_NO_PROJECT = (
    "it works in a project, and this client told none: open a folder there, or start `mcpbridge serve --project DIR`"
)
_NOT_ALLOWED = (
    "it works in a project, and what a client over HTTP tells of its own counts only below the directories that "
    "`http.projects` of the configuration names; {} is not"
)
_NOT_THERE = "it works in a project, and {}, the one that this client told, is no directory here: open one that is"


class Choosing:
    """Chooses, and opens what is not there."""

    def __init__(self, bases: Bases, further: Further) -> None:
        self._bases, self._further = bases, further

    async def serving(self, base: Upstream, client: Elicitor) -> Upstream:
        """See `Pool.serving`."""
        while True:
            base = self._bases.there(base)
            found = await self._right_one(base, client)
            if found not in self._bases.left:  # as one that was replaced meanwhile
                return found

    def expect(self, profile: ClientCapabilities, view: str, project: str, principal: str) -> None:
        """See `Pool.expect`."""
        for known in list(self._bases.upstreams.values()):
            if view not in ("", known.name):
                continue
            is_to_move = project and is_there(project) and not known.has_declared and self._bases.may_move(known)
            upstream = self._bases.move(known, project, principal) if is_to_move else known
            is_taken = upstream.profile.without(upstream.habits.quiet) is not NO_CAPABILITIES
            is_settled = upstream.has_declared or upstream.has_served or is_taken
            is_at_home = upstream.is_shared or upstream.home == (principal, place_of(project))
            if not is_settled and is_at_home and upstream.settings.questions == "auto":
                self._adopt(upstream, profile)

    async def _right_one(self, base: Upstream, client: Elicitor) -> Upstream:
        if base.settings.share == "shared":
            return await self._shared(base, client)
        profile = NO_CAPABILITIES if base.settings.questions == "never" else client.profile
        if base.settings.share == "session":
            return await self._own(base, profile, client)
        return await self._of_project(base, profile, client)

    async def _shared(self, base: Upstream, client: Elicitor) -> Upstream:
        if base.session is None and not base.is_at_rest:
            await base.ready()  # until then its era is not known, and a modern server needs one session only
        if base.modern or base.settings.questions == "never":
            return base
        if not base.suits(client.profile) and not base.has_served:
            self._adopt(base, client.profile)  # nobody used it yet: better another session than one more
        if base.suits(client.profile):
            return await self._freed(base, base, client)
        found = self._further.suited(base, client.profile)
        if found is None:
            found = self._further.opened(base, (base.name, base.habits.declared(client.profile), 0, ""))
        return await self._freed(found, base, client)

    async def _freed(self, upstream: Upstream, base: Upstream, client: Elicitor) -> Upstream:
        """This instance, once no other client holds it; or another one, if that takes too long.

        Most calls are short: another process is worth a moment. While it is not up it is not used either, so the time
        of its start does not count.
        """
        clock, last = asyncio.get_running_loop().time, float("inf")
        while upstream.is_held_from(client):
            if _is_opening(upstream):
                await upstream.ready()
                continue
            last = min(last, clock() + base.settings.queue_timeout * FREE_SHARE)
            if clock() >= last or not await upstream.freed(min(FREE_SECONDS, last - clock())):
                if _is_opening(upstream):
                    continue  # anew
                found = self._further.of_the_kind(base, client)
                if found is None and client.give_way(base.name):
                    await anyio.sleep(YIELD_SECONDS)
                    found = self._further.of_the_kind(base, client)
                return found or upstream  # there it waits for its turn
        return upstream

    @staticmethod
    def _adopt(upstream: Upstream, profile: ClientCapabilities) -> None:
        is_apart = upstream.settings.share == "session"
        upstream.adopt(profile if is_apart else upstream.habits.declared(profile))

    async def _own(self, base: Upstream, profile: ClientCapabilities, client: Elicitor) -> Upstream:
        """The client's own."""
        if not client.home:
            return base
        project = await client.project() if self._bases.servers[base.name].project_texts else ""
        base = self._bases.there(base)
        self._require_project(base, project)
        if self._bases.waits(base):
            base = self._bases.move(base, project, client.principal)
        return self._further.opened(base, (base.name, profile, client.home, place_of(project)), project)

    async def _of_project(self, base: Upstream, profile: ClientCapabilities, client: Elicitor) -> Upstream:
        """That of the client's project: the one that lists, if it is of this project or can still become so."""
        project = await client.project()
        base = self._bases.there(base)
        self._require_project(base, project)
        home = client.principal, place_of(project)
        if not project and base.home is None and (base.modern or (profile is NO_CAPABILITIES and base.suits(profile))):
            return base  # of no project, and the first session declares what such a client can be asked
        if project and base.home != home and self._bases.may_move(base):
            base = self._bases.move(base, project, client.principal)
        if project and base.home == home:
            if base.session is None and not base.is_at_rest:
                await base.ready()  # as above
            if not base.has_served and not base.modern and not base.suits(profile):
                self._adopt(base, profile)
            if base.modern or base.suits(profile):
                return base
        if (found := self._further.suited(base, profile, home, home[1])) is not None:
            return found
        return self._further.opened(base, (base.name, base.habits.declared(profile), home, home[1]), project)

    def _require_project(self, base: Upstream, project: str) -> None:
        settings = self._bases.servers[base.name]
        if settings.needs_project and not directory_of(project):
            told = told_elsewhere(project)
            raise UpstreamUnavailable(base.name, _NOT_ALLOWED.format(told[:200]) if told else _NO_PROJECT)
        if settings.project_texts and not is_there(project):
            raise UpstreamUnavailable(base.name, _NOT_THERE.format(directory_of(project)[:200]))


def _is_opening(upstream: Upstream) -> bool:
    return upstream.session is None
