"""All upstreams by name: started side by side, stopped side by side, and changed while they run.

The first instance of a server is the one that lists (`instances/primary`), and usually the only one. Others come when
a call needs them (`instances/on_demand`); which is right for a client is decided in `instances/chooser`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import anyio

from mcpbridge.base.errors import Overloaded
from mcpbridge.base.log import get_logger
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities, Elicitor
from mcpbridge.core.identity import Identity, with_rights
from mcpbridge.core.model import Call
from mcpbridge.protocol.transport import Transport
from mcpbridge.upstream.instances.chooser import InstanceChooser, RequireAccount
from mcpbridge.upstream.instances.on_demand import Instance, Key, OnDemandInstances
from mcpbridge.upstream.instances.primary import CurrentInstances, PrimaryInstances
from mcpbridge.upstream.instances.reconfigure import Changed, changes
from mcpbridge.upstream.manifest import Manifest
from mcpbridge.upstream.session.asking_history import AskingHistory
from mcpbridge.upstream.session.question_limits import QuestionLimits
from mcpbridge.upstream.settings import REVALIDATE, WARM_UP, ServerSettings
from mcpbridge.upstream.supervisor import Observer, Upstream
from mcpbridge.upstream.warm_up import WarmUp

if TYPE_CHECKING:  # loaded with the first server over HTTP
    from mcpbridge.upstream.transports.continued_sessions import SessionKeeper

log = get_logger("mcpbridge.upstream")

_LISTS = ("tools", "prompts", "resources", "templates")


async def no_account_needed(upstream: Upstream, principal: str) -> None:
    """There are no accounts of users."""


class Pool:
    """The upstreams of one bridge. Iterate `upstreams` for all of them, disabled ones left out."""

    def __init__(
        self,
        servers: Mapping[str, ServerSettings],
        make_transport: Callable[..., Transport],
        observer: Observer,
        *,
        client_info: dict[str, str],
        manifest: Manifest | None = None,
        warm_up: int = WARM_UP,
        revalidate: float = REVALIDATE,
        redact: Callable[[str], str] = lambda text: text,
        require_account: RequireAccount = no_account_needed,
    ) -> None:
        """`manifest` remembers what servers offered, so that they are started at their first use.

        They are looked at in the background, `warm_up` at a time, when that is older than `revalidate` seconds.
        `redact` masks secrets in what servers fail with. `make_transport` gets the name and the settings of a server,
        and the principal where that one has an account of its own there. `require_account`: see `RequireAccount`.
        """
        self._manifest, self._warm_up, self._revalidate = manifest, warm_up, revalidate
        self._make_transport, self._client_info, self._redact = make_transport, client_info, redact
        self.keeper: Callable[[str, object, str], SessionKeeper | None] | None = None
        """Where the session of a client at a server is written down, by server, client and project. None: nowhere."""
        self._histories: dict[str, AskingHistory] = {}
        self._question_limits: dict[str, QuestionLimits] = {}
        """Of each server, where there is no manifest to keep them."""
        self._primary = PrimaryInstances(_enabled(servers), self._base)
        self._current = CurrentInstances(observer, self._primary.counts)
        self._observer: Observer = self._current
        self._on_demand = OnDemandInstances(self._another)
        self._chooser = InstanceChooser(self._primary, self._on_demand, require_account)
        self.upstreams: Mapping[str, Upstream] = self._primary.upstreams
        """Those that list, by name and in this order; always the same object."""
        for name in self._primary.servers:
            self._primary.install(name)

    def __repr__(self) -> str:
        ready = sum(upstream.status.state == "ready" for upstream in self.upstreams.values())
        return f"<Pool {len(self.upstreams)} upstreams, {ready} ready, {len(list(self._on_demand))} more instances>"

    def statistics(self) -> dict[str, Any]:
        """The state of every instance in numbers, by server; the one that lists comes first."""
        numbers: dict[str, Any] = {name: [] for name in self.upstreams}
        for upstream in self.everyone():
            numbers.setdefault(upstream.name, []).append(upstream.statistics())
        return {"servers": numbers, "ending": len(self._primary.left)}

    def everyone(self) -> Iterator[Upstream]:
        """The upstreams, and every further instance of them that is open."""
        yield from list(self.upstreams.values())
        for instance in self._on_demand:
            yield instance.upstream

    def instances(self, name: str) -> int:
        """How many instances of a server there are."""
        return (name in self.upstreams) + self._on_demand.count(name)

    def runs_here(self, name: str) -> bool:
        """Whether the server is a process of this bridge, which no other bridge reaches."""
        upstream = self.upstreams.get(name)
        return upstream is not None and upstream.settings.kind == "stdio" and upstream.settings.share != "fleet"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep every upstream connected meanwhile; leaving ends them all and their processes."""
        failure: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            self._on_demand.run_in(tasks)
            self._primary.run_in(tasks)
            if self._manifest is not None:
                tasks.start_soon(self._manifest.run)
                tasks.start_soon(WarmUp(self.upstreams, at_once=self._warm_up, revalidate=self._revalidate).run)
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - raised again below; the group would wrap it in its own
                failure = error
            finally:
                self._on_demand.run_in(None)
                self._primary.run_in(None)
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    def works_on(self, call: Call) -> bool:
        """A server has the call, or runs it as a task; or the one that runs in its place."""
        while call.runs_as is not None:
            call = call.runs_as
        everyone = (*self.everyone(), *self._primary.left)
        return call.begun == "task" or any(call in upstream.running for upstream in everyone)

    async def settled(self, seconds: float) -> bool:
        """Wait until every upstream is ready or has failed once, as configured now. False when time was up before."""
        with anyio.move_on_after(seconds):
            for name in list(self.upstreams):
                await self._primary.succeeded(name)
                while (upstream := self.upstreams.get(name)) is not None and not upstream.has_settled:
                    await upstream.connection.stepped()
            return True
        return False

    def when_lists_change(self, on_changed: Callable[[str], object]) -> None:
        """Have this called with the name of each server that announced other lists, once they are read."""
        self._current.on_changed = on_changed

    def lists_changed(self, name: str) -> None:
        """The lists of this server have changed, as another bridge heard: read them again."""
        upstream = self.upstreams.get(name)
        if upstream is None:
            return
        if upstream.status.state == "ready":
            upstream.listings.relisting.announced(*_LISTS)
        else:
            upstream.connection.poke()  # it lists when it starts

    def lists_may_have_changed(self) -> None:
        """Of any server, which another bridge may have heard: those that run are asked again."""
        for upstream in self.upstreams.values():
            if upstream.status.state == "ready":
                upstream.listings.relisting.mark_stale(*_LISTS)

    async def lists_in_force(self, name: str = "") -> None:
        """Return when what this server announced of its lists is in force; empty: what all of them did.

        That takes a second at most; see `session/relisting`. Cancelling is safe.
        """
        due = [
            upstream.listings.relisting
            for upstream in self.upstreams.values()
            if upstream.listings.relisting.is_due and name in ("", upstream.name)
        ]
        if due:
            await asyncio.gather(*(relisting.in_force() for relisting in due))

    # -- clients

    async def serving(
        self, base: Upstream, client: Elicitor, principal: str | None = None, identity: Identity | None = None
    ) -> Upstream:
        """The instance of a server that calls of this client go to; it is started if there is none.

        `principal`: who is behind it; None: what the client says of itself. `identity`: what its token says.

        Raises:
            SignInNeeded: users have accounts of their own there, and this one has none.
            UpstreamUnavailable: the server is not there, or needs a project that the client has not.
            Overloaded: it has as many instances as it may.
        """
        user = client.principal if principal is None else principal
        if base.settings.auth.account == "exchange":  # for this very token, not for another one of the same person
            user = with_rights(user, identity)
        return await self._chooser.serving(base, client, user)

    def expect(self, profile: ClientCapabilities, view: str = "", *, project: str = "", principal: str = "") -> None:
        """A client came that can be asked this, and works in this project: what is not open yet is opened for such.

        `view`: the one server that the client sees; empty: all. `project`: its URI; empty: the client has none, or it
        is not known yet.
        """
        self._chooser.expect(profile, view, project, principal)

    def wants_project(self, view: str = "") -> bool:
        """A server that the client sees waits for a project to start in."""
        return any(self._primary.waits(upstream) for name, upstream in self.upstreams.items() if view in ("", name))

    def end_of_user(self, principal: str, server: str = "") -> int:
        """The account of a user is gone: what runs with it ends at once. Returns how many instances that were.

        `server`: at this one; empty: at all.
        """
        return self._on_demand.end_of_user(principal, server)

    def list_anew(self, name: str) -> None:
        """Have another instance list from now on: the account that the last one used is gone, or there is one now."""
        if (before := self.upstreams.get(name)) is not None:
            self._primary.install(name, self._primary.project(name), home=before.home)

    def release(self, home: object) -> None:
        """A client is gone: instances that were its own end."""
        self._on_demand.release(home)

    # -- other settings

    async def configure(self, servers: Mapping[str, ServerSettings]) -> Changed:
        """Have these servers from now on; returns what became of each. Those whose settings are equal notice nothing.

        One that is removed gets no new calls, finishes those that it has, and ends; nobody waits for that. So does one
        that is replaced, if it works: once its successor is up, or could not be started.
        """
        before, after = self._primary.servers, _enabled(servers)
        self._primary.servers = after
        changed = changes(before, after)
        for name in changed.untouched:
            if before[name] != after[name]:
                self._tell_settings(name)
        for name in changed.removed:
            self._primary.remove(name)
            for instance in self._on_demand.take(name):
                self._primary.leave(instance)
        for name in changed.replaced:
            self._replace(name, stays=before[name].share == after[name].share)
        for name in changed.added:
            self._primary.install(name)
        self._primary.sort()
        if changed.added or changed.removed or changed.replaced:
            log.info("servers changed", added=changed.added, removed=changed.removed, replaced=changed.replaced)
        return changed

    def _tell_settings(self, name: str) -> None:
        """Nothing of the connection is other than it was."""
        for instance in (*self._primary.of(name), *self._on_demand.of(name)):
            instance.upstream.configure(self._primary.settings(name, instance.project))

    def _replace(self, name: str, *, stays: bool) -> None:
        """`stays`: its clients share it as they did, so it stays in its project."""
        before, settings = self.upstreams[name], self._primary.servers[name]
        project, home = (self._primary.project(name), before.home) if stays else ("", None)
        further = self._on_demand.replaceable(name)

        def adopt(upstream: Upstream) -> None:
            if settings.share != "session" and settings.questions == "auto":
                of_clients = before.declared.profile.without(before.declared.history.quiet)
                upstream.declared.adopt(upstream.declared.history.declared(of_clients))

        def installed(base: Upstream) -> None:
            for instance in further:
                self._replace_further(instance, base, stays=stays)

        is_able = not self._primary.settings(name, project).unavailable
        if stays and is_able and before.session is not None:
            self._primary.succeed(name, project, home=home, before_start=adopt, installed=installed)
        else:
            installed(self._primary.install(name, project, home=home, before_start=adopt))

    def _replace_further(self, instance: Instance, base: Upstream, *, stays: bool) -> None:
        if instance.key is None or not self._on_demand.take_one(instance):
            return
        if instance.upstream.wanted.uris:
            heir = base
            if stays and not base.is_shared:  # its subscribers hear on of what is their own
                with suppress(Overloaded):
                    heir = self._on_demand.opened(base, instance.key, instance.project)
            instance.upstream.wanted.hand_over(heir.wanted)
        self._primary.leave(instance)

    # -- making

    def _base(self, name: str, project: str, *, home: object) -> Upstream:
        return self._make(name, project, is_primary=True, home=home)

    def _another(self, key: Key | None, name: str, project: str) -> Instance:
        if key is None:
            return Instance(self._make(name, project, is_spare=True), project)
        _, profile, whose, _ = key
        settings = self._primary.servers[name]
        home = None if settings.is_shared else whose
        user = str(cast("tuple[object, ...]", whose)[0]) if settings.auth.is_per_user else None
        return Instance(self._make(name, project, profile=profile, home=home, user=user), project, key)

    def _make(
        self,
        name: str,
        project: str,
        *,
        is_primary: bool = False,
        profile: ClientCapabilities = NO_CAPABILITIES,
        home: object = None,
        is_spare: bool = False,
        user: str | None = None,
    ) -> Upstream:
        settings = self._primary.settings(name, project)
        transport = self._make_transport(name, settings, *(() if user is None else (user,)))
        if self.keeper is not None and home is not None and settings.share == "session":
            keeper, keep_in = self.keeper(name, home, project), getattr(transport, "keep_in", None)
            if keeper is not None and keep_in is not None:
                keep_in(keeper)
        return Upstream(
            name,
            settings,
            transport,
            self._observer,
            client_info=self._client_info,
            is_primary=is_primary,
            profile=profile,
            home=home,
            is_spare=is_spare,
            memory=self._manifest.of(name, self._primary.servers[name]) if self._manifest and is_primary else None,
            history=self._history_of(name),
            question_limits=self._question_limits_of(name, settings),
            redact=self._redact,
        )

    def _history_of(self, name: str) -> AskingHistory:
        if self._manifest is not None:
            return self._manifest.history(name, self._primary.servers[name])
        return self._histories.setdefault(name, AskingHistory())

    def _question_limits_of(self, name: str, settings: ServerSettings) -> QuestionLimits:
        """The same for all instances of a server, and for its successor when its settings change."""
        if (limits := self._question_limits.get(name)) is None:
            return self._question_limits.setdefault(name, QuestionLimits(name, settings))
        limits.configure(settings)
        return limits


def _enabled(servers: Mapping[str, ServerSettings]) -> dict[str, ServerSettings]:
    return {name: settings for name, settings in sorted(servers.items()) if not settings.disabled}
