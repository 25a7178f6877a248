"""Which instance of a server a client's calls go to.

A session of the handshake era declares once what its client can be asked (MCP 2025-11-25, Lifecycle, Capability
Negotiation), so clients that can be asked different things cannot share one, and a server may be configured to keep its
clients apart.

Where the clients of a project share, the instance that lists belongs to a project as well, if it can: to that of the
first client that comes, so that one project is one process. A server that cannot start without a project waits for it.
"""

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities, Elicitor
from mcpbridge.upstream.instances.on_demand import OnDemandInstances
from mcpbridge.upstream.instances.primary import PrimaryInstances
from mcpbridge.upstream.projects import directory_of, is_there, place_of, uri_of_elsewhere
from mcpbridge.upstream.supervisor import Upstream

YIELD_SECONDS = 0.02
"""Seconds until a call that gave way has left its session."""
FREE_SECONDS = 0.5
"""Seconds without the end of a call on a session that another client uses, after which one more is opened."""
FREE_SHARE = 0.5
"""Share of the time that a call may wait for its place, after which one more is opened though calls come and go."""

_NO_PROJECT = (
    "it works in a project, and this client named none: open a folder there, or start `mcpbridge serve --project DIR`"
)
_NOT_ALLOWED = (
    "it works in a project, and a directory that a client over HTTP names counts only below those that "
    "`http.projects` of the configuration names; {} is not"
)
_NOT_THERE = "it works in a project, and {}, the one that this client named, is no directory here: open one that is"


RequireAccount = Callable[[Upstream, str], Awaitable[None]]
"""Returns if this principal has an account at the server; raises `SignInNeeded` if not."""


class InstanceChooser:
    """Chooses, and opens what is not there."""

    def __init__(
        self, primary: PrimaryInstances, on_demand: OnDemandInstances, require_account: RequireAccount
    ) -> None:
        self._primary, self._on_demand, self._require_account = primary, on_demand, require_account

    async def serving(self, base: Upstream, client: Elicitor, principal: str) -> Upstream:
        """See `Pool.serving`."""
        while True:
            base = self._primary.there(base)
            chosen = await self._right_one(base, client, principal)
            if chosen not in self._primary.left:  # as one that was replaced meanwhile
                return chosen

    def expect(self, profile: ClientCapabilities, view: str, project: str, principal: str) -> None:
        """See `Pool.expect`."""
        for known in list(self._primary.upstreams.values()):
            if view not in ("", known.name):
                continue
            is_to_move = (
                project and is_there(project) and not known.connection.has_declared and self._primary.may_move(known)
            )
            upstream = self._primary.move(known, project, principal) if is_to_move else known
            is_taken = upstream.declared.profile.without(upstream.declared.history.quiet) is not NO_CAPABILITIES
            is_settled = upstream.connection.has_declared or upstream.usage.has_served or is_taken
            is_at_home = upstream.is_shared or upstream.home == (principal, place_of(project))
            if not is_settled and is_at_home and upstream.settings.questions == "auto":
                self._adopt(upstream, profile)

    async def _right_one(self, base: Upstream, client: Elicitor, principal: str) -> Upstream:
        if base.settings.is_shared:
            return await self._shared(base, client)
        if base.settings.share == "user" or base.settings.auth.is_per_user:
            return await self._of_user(base, client, principal)
        profile = NO_CAPABILITIES if base.settings.questions == "never" else client.capabilities
        if base.settings.share == "session":
            return await self._own(base, profile, client)
        return await self._of_project(base, profile, client)

    async def _shared(self, base: Upstream, client: Elicitor) -> Upstream:
        if base.session is None and not base.is_at_rest:
            await base.requests.ready()  # until then its era is not known, and a modern server needs one session only
        if base.modern or base.settings.questions == "never":
            return base
        if not base.declared.suits(client.capabilities) and not base.usage.has_served:
            self._adopt(base, client.capabilities)  # nobody used it yet: better another session than one more
        if base.declared.suits(client.capabilities):
            return await self._freed(base, base, client)
        chosen = self._on_demand.suited(base, client.capabilities)
        if chosen is None:
            chosen = self._on_demand.opened(
                base, (base.name, base.declared.history.declared(client.capabilities), 0, "")
            )
        return await self._freed(chosen, base, client)

    async def _freed(self, upstream: Upstream, base: Upstream, client: Elicitor) -> Upstream:
        """This instance, once no other client holds it; or another one, if that takes too long.

        Most calls are short: another process is worth a moment. While it is not up it is not used either, so the time
        of its start does not count.
        """
        clock, last = asyncio.get_running_loop().time, float("inf")
        while upstream.requests.is_held_from(client):
            if _is_opening(upstream):
                await upstream.requests.ready()
                continue
            last = min(last, clock() + base.settings.queue_timeout * FREE_SHARE)
            if clock() >= last or not await upstream.requests.freed(min(FREE_SECONDS, last - clock())):
                if _is_opening(upstream):
                    continue  # anew
                return await self._another(upstream, base, client)
        return upstream

    async def _another(self, upstream: Upstream, base: Upstream, client: Elicitor) -> Upstream:
        """One more instance; or where there are as many as there may be, one whose call gives way to this one.

        A call that waits for a person gives way only after a while, and another call may be first where one did. So it
        is tried again as long as one may wait for a place. After that, or while no person is waited for anywhere, this
        call waits for its turn on the instance it has.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + base.settings.queue_timeout
        while (chosen := self._on_demand.of_the_kind(base, client)) is None:
            everywhere = (upstream, *(instance.upstream for instance in self._on_demand.of(base.name)))
            is_somebody_asked = any(one.connection.is_asking for one in everywhere)
            if not upstream.requests.is_held_from(client) or not is_somebody_asked or clock() >= until:
                return upstream
            if client.give_way(base.name):
                await anyio.sleep(YIELD_SECONDS)
            else:
                await upstream.requests.call_ended(min(FREE_SECONDS, until - clock()))
        return chosen

    @staticmethod
    def _adopt(upstream: Upstream, profile: ClientCapabilities) -> None:
        is_apart = upstream.settings.share == "session"
        upstream.declared.adopt(profile if is_apart else upstream.declared.history.declared(profile))

    async def _own(self, base: Upstream, profile: ClientCapabilities, client: Elicitor) -> Upstream:
        """The client's own."""
        if not client.home:
            return base
        project = await client.project() if self._primary.servers[base.name].project_texts else ""
        base = self._primary.there(base)
        self._require_project(base, project)
        if self._primary.waits(base):
            base = self._primary.move(base, project, client.principal)
        return self._on_demand.opened(base, (base.name, profile, client.home, place_of(project)), project)

    async def _of_user(self, base: Upstream, client: Elicitor, principal: str) -> Upstream:
        """That of the user, never the one that lists: its lists are everybody's, so no call of anybody is to touch it.

        Where users have accounts of their own, it is that of the account, and a user without one gets none.
        """
        project = await client.project() if base.settings.share == "project" else ""
        base = self._primary.there(base)
        if base.settings.share == "project":
            self._require_project(base, project)
        if base.settings.auth.is_per_user:
            await self._require_account(base, principal)
            base = self._primary.there(base)
        profile = NO_CAPABILITIES if base.settings.questions == "never" else client.capabilities
        home = principal, place_of(project)
        if (chosen := self._on_demand.suited(base, profile, home, home[1])) is not None:
            return chosen
        key = (base.name, base.declared.history.declared(profile), home, home[1])
        await self._on_demand.room(base, key)
        return self._on_demand.opened(base, key, project)

    async def _of_project(self, base: Upstream, profile: ClientCapabilities, client: Elicitor) -> Upstream:
        """That of the client's project: the one that lists, if it is of this project or can still become so."""
        project = await client.project()
        base = self._primary.there(base)
        self._require_project(base, project)
        home = client.principal, place_of(project)
        if (
            not project
            and base.home is None
            and (base.modern or (profile is NO_CAPABILITIES and base.declared.suits(profile)))
        ):
            return base  # of no project, and the first session declares what such a client can be asked
        if project and base.home != home and self._primary.may_move(base):
            base = self._primary.move(base, project, client.principal)
        if project and base.home == home:
            if base.session is None and not base.is_at_rest:
                await base.requests.ready()  # as above
            if not base.usage.has_served and not base.modern and not base.declared.suits(profile):
                self._adopt(base, profile)
            if base.modern or base.declared.suits(profile):
                return base
        if (chosen := self._on_demand.suited(base, profile, home, home[1])) is not None:
            return chosen
        return self._on_demand.opened(
            base, (base.name, base.declared.history.declared(profile), home, home[1]), project
        )

    def _require_project(self, base: Upstream, project: str) -> None:
        settings = self._primary.servers[base.name]
        if settings.needs_project and not directory_of(project):
            uri = uri_of_elsewhere(project)
            raise UpstreamUnavailable(base.name, _NOT_ALLOWED.format(uri[:200]) if uri else _NO_PROJECT)
        if settings.project_texts and not is_there(project):
            raise UpstreamUnavailable(base.name, _NOT_THERE.format(directory_of(project)[:200]))


def _is_opening(upstream: Upstream) -> bool:
    return upstream.session is None
