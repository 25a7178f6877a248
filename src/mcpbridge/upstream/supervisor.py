"""Keep one upstream connected. The only place that dials, reconnects and gives up.

One owner task an upstream opens its channel, holds the session and closes both in the same task, life after `life`
(cancel scopes must be left by the task that entered them; python-sdk issues 79, 577, 922). Everybody else talks to the
`Upstream` object, which refuses, waits or passes the call on by the state it is in (see `link`).

A dead or slow upstream costs nobody else anything: no lock and no queue is shared between upstreams.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol, cast

from msgspec import Raw

from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities, Elicitor
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.revisions import LATEST_LEGACY
from mcpbridge.protocol.transport import Transport
from mcpbridge.upstream.concurrency import Habits, suits
from mcpbridge.upstream.connection.backoff import BreakerState
from mcpbridge.upstream.connection.connect import Life
from mcpbridge.upstream.connection.connection import Link, Status
from mcpbridge.upstream.connection.idle_stop import Repose
from mcpbridge.upstream.manifest import Known, Memory
from mcpbridge.upstream.requests import Traffic
from mcpbridge.upstream.session.elicitation import Questions
from mcpbridge.upstream.session.listings import Attribution, Listings, Lists, Notices
from mcpbridge.upstream.session.session import UpstreamSession
from mcpbridge.upstream.session.subscriptions import Wanted
from mcpbridge.upstream.session.tasks import TaskBook
from mcpbridge.upstream.settings import ServerSettings


class Observer(Protocol):
    """Who wants to know what happens at an upstream. Called on the event loop; returns at once."""

    def offered(self, upstream: "Upstream", lists: Lists) -> None:
        """It listed anew; `lists` is everything it offers now."""
        ...

    def resource_updated(self, upstream: "Upstream", params: Raw) -> None:
        """A resource that somebody subscribed to has changed."""
        ...

    def logged(self, upstream: "Upstream", params: Raw) -> None:
        """A log message that belongs to no call we know of."""
        ...

    def elicitation_completed(self, upstream: "Upstream", params: Raw) -> None:
        """What a URL question was about is done (2025-11-25)."""
        ...

    def beside(self, upstream: "Upstream") -> Elicitor | None:
        """The one client that this session can be about, to be asked outside of any call; None when it is not one."""
        ...

    def stepped(self, upstream: "Upstream") -> None:
        """Its state changed."""
        ...


class Upstream:
    """One server behind the bridge."""

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        transport: Transport,
        observer: Observer,
        *,
        client_info: dict[str, str],
        is_base: bool = True,
        profile: ClientCapabilities = NO_CAPABILITIES,
        home: object = None,
        is_spare: bool = False,
        memory: Memory | None = None,
        habits: Habits | None = None,
    ) -> None:
        """`is_base`: its lists are the ones that count; of a further instance of a server they are not asked for.

        `home`: the client or project whose own it is; None: everybody's.
        `profile`: what its sessions of the handshake era declare that can be asked; see `adopt`.
        `is_spare`: it is connected to, and opened only once it is told a profile by `assign`. `memory`: what it offered
        when it was up last, so that it need not run to be listed, and where that is kept; None: it is kept nowhere.
        `habits`: what the server was seen to ask, the same for all its instances.
        """
        self.name, self.transport = name, transport
        self.settings = settings
        """As they are now; see `configure`."""
        self.is_base, self.home = is_base, home
        self.is_shared = settings.share == "shared"
        self.habits = habits or (memory.habits if memory is not None else Habits())
        """What the server was seen to ask."""
        self.habits.followers.add(self)
        self.profile = profile
        self._quiet = NO_CAPABILITIES
        self.plain_profile: ClientCapabilities | None = None
        """Calls of clients that can be asked exactly this go to this instance without a further look: the usual case,
        a shared legacy session that can ask nobody anything. None while there is none, or it is not as simple."""
        self.restarts = 0
        self.modern = False
        """The last session was of the modern era."""
        self.version = ""
        """The revision of the last session; empty before the first."""
        self.capabilities: dict[str, Any] = {}
        """What it declared in its last session."""
        self.instructions = ""
        """What it told in its last session of how to use it."""
        self.title = ""
        """What it called itself in its last session."""
        self._observer = observer
        self._client_info = client_info
        self._era = settings.era
        self._has_agreed = self._is_told = False
        self._assigned = asyncio.Event()
        if not is_spare:
            self._assigned.set()
        self._link = Link(name, settings, transport, stepped=self._stepped)
        self.tasks = TaskBook(self._link.over)
        """Tasks of a legacy server that somebody waits for."""
        self._attribution = Attribution()
        self._traffic = Traffic(name, settings, self._link, self._attribution, self.tasks, self.habits)
        self._repose = Repose(
            name, settings, self._link, self._traffic, is_base=is_base, is_remembered=memory is not None
        )
        self.wanted = Wanted(self._repose.held)
        """What the clients want of it besides calls."""
        self._listings = Listings(name, settings, self._listed if is_base else None)
        self._notices = Notices(
            name,
            self._attribution,
            self._listings,
            self.tasks,
            resource_updated=partial(observer.resource_updated, self),
            logged=partial(observer.logged, self),
            elicitation_completed=partial(observer.elicitation_completed, self),
        )
        self._memory = memory
        if memory is not None and memory.known is not None:
            self._recall(memory.known)
        self._begin_with_habits()

    # -- where it stands

    @property
    def status(self) -> Status:
        """Where it stands."""
        return self._link.status

    @property
    def state_text(self) -> str:
        """The state and its reason in one line: `retrying in 4 s: exit code 1: <last stderr line>`."""
        return self._link.state_text

    @property
    def idle_stop(self) -> float:
        """Seconds without use after which it is stopped; 0: never."""
        return self._repose.seconds

    @property
    def has_settled(self) -> bool:
        """It is ready, or has failed at least once, or is known from earlier: waiting for it tells nothing new."""
        return self._link.has_settled or (self._is_told and self.is_known)

    async def stepped(self) -> None:
        """Return at its next change of state."""
        await self._link.stepped()

    @property
    def breaker_state(self) -> BreakerState:
        """Whether calls pass: `closed`, `open` while it is left alone, `half-open` while one call finds out."""
        return self._traffic.breaker_state

    async def tried(self) -> None:
        """Start it, though it may be known what it offers; return when it is ready or could not be started."""
        while self.session is None:
            if self.status.state == "idle" and not self.status.reason:
                self._link.poke()
            elif self._link.has_settled:
                return
            await self.stepped()

    def tell(self) -> None:
        """Tell the observer where it stands and what it offers, as if that were news."""
        if self.session is not None or self.is_known:
            self._observer.offered(self, self.lists)
        self._stepped()

    def poke(self) -> None:
        """Try now to connect, whatever the wait; start it if it is idle."""
        self._link.poke()

    async def look(self) -> None:
        """Start it if it is idle, only to see what it offers now; return when that is clear. Unused it ends soon."""
        if self.status.state != "idle":
            return
        self._repose.is_looked_at, self._era = True, self.settings.era
        self._link.poke()
        while self.status.state in ("idle", "starting"):
            await self.stepped()
            if self.status.state == "idle":
                return  # it could not be started

    def configure(self, settings: ServerSettings) -> None:
        """Go on with settings that leave it as it is: see `KEEPS` in `reconfiguring`."""
        self.settings = self._listings.settings = settings
        self._traffic.adopt(settings.timeouts)

    # -- what it is and offers

    @property
    def session(self) -> UpstreamSession | None:
        """Its session, while that is ready for calls."""
        return self._link.session

    @property
    def lists(self) -> Lists:
        """What it offers, as it listed last."""
        return self._listings.lists

    @property
    def list_ttl_ms(self) -> dict[str, int]:
        """Milliseconds that it says its lists stay fresh, by kind; of those that it says it of."""
        return self._listings.ttl_ms

    @property
    def is_known(self) -> bool:
        """What it offers and speaks is remembered, whether or not it runs."""
        return self._memory is not None and self._memory.known is not None

    @property
    def is_at_rest(self) -> bool:
        """It is idle or on its way up again, and what it speaks is known: nobody need wait to find that out."""
        return self.is_known and self._link.starts_on_demand and self.status.state in ("idle", "starting")

    @property
    def seen(self) -> float:
        """Wall time when it was up last and listed, as far as that is remembered; 0: never."""
        return self._memory.seen if self._memory is not None else 0.0

    def lacks(self, *capability: str) -> bool:
        """It is known not to have declared this: `completions`, or `resources`, `subscribe`."""
        is_told = self.session is not None or self.is_known
        return is_told and _declared(self.capabilities, *capability) in (None, False)

    @property
    def may_ask_back(self) -> bool:
        """A result of it may be `input_required`: it is of the modern era, or that is not known yet."""
        return self.modern or self._link.session is None

    @property
    def runs_tasks(self) -> bool:
        """It takes calls of tools as tasks, as revision 2025-11-25 has them."""
        is_able = not self.modern and self.version >= LATEST_LEGACY
        return is_able and _declared(self.capabilities, "tasks", "requests", "tools", "call") is not None

    async def list_again(self, kind: str) -> None:
        """Ask it now what it offers of this kind; what it answers is published before this returns."""
        if (session := self._link.session) is not None:
            await self._listings.again(session, [kind])

    # -- calls

    def request(self, call: Call) -> Coroutine[Any, Any, Body]:
        """Pass a call on and wait for its result.

        Raises:
            UpstreamError, Overloaded: by what went wrong; the classes say whether the server may have acted.
        """
        return self._traffic.request(call)

    async def ready(self) -> None:
        """Return once it is ready and has listed what it offers. Only as many may wait as its queue takes later.

        Raises:
            UpstreamUnavailable: it will not be soon; says why.
            Overloaded: too many wait already.
        """
        await self._traffic.ready()

    @property
    def running(self) -> Collection[Call]:
        """The calls that it works on now, oldest first."""
        return self._attribution.running

    @property
    def has_served(self) -> bool:
        """A client's call went to it: it may hold state that a new session would lose."""
        return self._traffic.has_served

    def used(self, *, counts: bool = True) -> AbstractContextManager[None]:
        """Keep an instance open meanwhile, also between its calls. `counts`: and for its `idle_stop` after that."""
        return self._traffic.used(counts=counts)

    def expect_back(self, seconds: float) -> None:
        """A client was asked something and goes on with its call within so many seconds: keep an instance open."""
        self._traffic.expect_back(seconds)

    async def idle(self, seconds: float) -> None:
        """Return when it has had nothing to do for so long."""
        await self._traffic.idle(seconds)

    def serves(self, client: Elicitor) -> bool:
        """Calls of this client may go to this very instance; cheap. False: `Pool.serving` tells which one is right."""
        if not self.is_shared:
            return False
        if self.modern or self.settings.questions == "never":
            return True
        return self.suits(client.profile) and (self.profile is NO_CAPABILITIES or not self.is_held_from(client))

    def suits(self, profile: ClientCapabilities) -> bool:
        """Clients that can be asked this may use its sessions of the handshake era.

        That is those that can be asked what it declares; and of a server that was known not to ask, when this session
        was opened, those that can be asked less.
        """
        return profile is self.profile or suits(self.profile, profile, self._quiet_still)

    def is_held_from(self, client: Elicitor) -> bool:
        """Calls of another client run on this session, whose questions could not be told from this client's."""
        return self._traffic.is_held_from(client)

    @property
    def idle_since(self) -> float:
        """Loop time when its last call ended, or when it was made."""
        return self._traffic.idle_since

    @property
    def is_idle(self) -> bool:
        """Nobody uses it or is expected back."""
        return self._traffic.is_idle

    @property
    def is_awaited(self) -> bool:
        """Calls wait for it to start."""
        return self._link.waiting > 0

    async def freed(self, seconds: float) -> bool:
        """Return when a call on it is over. False: none was within so many seconds, or it asks somebody right now."""
        return await self._traffic.freed(seconds)

    # -- tasks

    def over(self, call: Call) -> None:
        """Nothing more comes of a call, so what it asked is of no use any more. For those that may make a task."""
        self._link.over(call)

    def cancel_task(self, id_: str) -> None:
        """Tell it that the outcome of a task is not wanted any more; if it cannot be told, the task ends by itself."""
        if (session := self._link.session) is not None:
            session.cancel_task(id_)

    async def listen_to_tasks(self, ids: Sequence[str], heard: Callable[[str, Raw], None]) -> None:
        """Modern: hear of the news of these tasks, after an acknowledgement; returns when the server ends that.

        Raises:
            UpstreamError: it is not there, or refuses.
        """
        with self.used():
            session = self._link.session or await self._link.wait_for_session()
            await session.listen({}, [], heard, tasks=ids)

    # -- what it is told of its clients

    def adopt(self, profile: ClientCapabilities) -> None:
        """Declare this profile from now on. An open session of another one, which nobody may use yet, is replaced."""
        if profile is self.profile:
            return
        self.profile, self._quiet = profile, self.habits.quiet
        self._settle()
        session = self._link.session
        if session is not None and not session.modern:
            self._link.renew(session)

    def assign(self, profile: ClientCapabilities) -> None:
        """Open the spare for such clients."""
        self.profile, self._quiet = profile, self.habits.quiet
        self._settle()
        self._traffic.idle_since = asyncio.get_running_loop().time()
        self._assigned.set()

    @property
    def has_declared(self) -> bool:
        """The handshake of its session has begun, so what it declares is settled."""
        return self._link.has_declared

    @property
    def has_missed_roots(self) -> bool:
        """It asked for roots, as many servers do first of all, when there was no client to ask."""
        return self._link.questions is not None and self._link.questions.has_missed_roots

    def roots_changed(self) -> None:
        """The roots of the clients behind it are others now, or can be asked for now."""
        link = self._link
        if link.questions is not None:
            link.questions.has_missed_roots = False
        session = link.session
        if session is not None and not session.modern and session.profile.roots and not self.settings.roots:
            session.roots_changed()

    def _settle(self) -> None:
        """What follows for calls from the profile, the era and whether there is a session.

        Calls take turns where the server may ask somebody and a question of it names no call, since its transport has
        one stream. That holds for an instance of one client as well: each call of a modern one is asked by itself
        (`Elicitor.owner`).
        """
        habits, is_legacy = self.habits, not self.modern
        can_ask = is_legacy and bool(self.profile.without(habits.quiet))
        self._traffic.takes_turns = can_ask and self.transport.kind != "streamable-http"
        self._traffic.learns_of = self.profile if is_legacy and habits.learns_of(self.profile) else None
        self._quiet_still = self._quiet.without(self._quiet.without(habits.quiet))
        is_plain = self._has_agreed and self.is_shared and self.profile is NO_CAPABILITIES and not self.modern
        self.plain_profile = self.profile if is_plain else None

    def habits_changed(self) -> None:
        """The server was found not to ask something, or it asked."""
        self._settle()

    def _begin_with_habits(self) -> None:
        """No session holds anything yet: have it suit as many clients as can be."""
        self._quiet = self.habits.quiet
        if self.is_base and self.settings.share != "session" and self.settings.questions == "auto":
            self.profile = self.habits.declared(self.profile)
        self._settle()

    # -- the owner task

    async def run(self) -> None:
        """Own the connection until cancelled."""
        self._tell_known()
        if self.settings.unavailable:
            return
        link = self._link
        if self._repose.is_lazy and self.is_known:
            link.leave()
        try:
            while True:
                if self.status.state == "idle":
                    await link.rest()
                    self._begin_with_habits()
                await self._live()
        finally:
            link.step(Status("stopped"))

    async def _live(self) -> None:
        """A life, and the wait for the next one, if there is to be one."""
        link = self._link
        reason = await self._live_once()
        self._repose.is_looked_at = False
        if self.status.state == "idle":
            return  # nobody needed it
        if reason is None or link.is_renewing:
            # Another try at once, not counted: the server is well, it did not bear the probe of its era or
            # forgot our session.
            link.is_renewing = False
            return
        self._era = self.settings.era if self.status.state == "starting" else self._era
        self.restarts += 1
        if self._is_dispensable:
            link.leave(reason)
            return
        await link.pause(reason)
        if self._is_dispensable:
            link.leave()

    @property
    def _is_dispensable(self) -> bool:
        return self._listings.are_known and self._repose.is_due

    # -- what it is known for

    def _recall(self, known: Known) -> None:
        """It was so when it was up last."""
        self._listings.recall(known.lists, known.ttl_ms)
        self.modern, self.version, self.capabilities = known.modern, known.version, known.capabilities
        self.instructions, self.title = known.instructions, known.title
        if self._era == "auto" and not known.bears_probe:
            self._era = "legacy"

    def _tell_known(self) -> None:
        self._is_told = True
        if self.is_known:
            self._observer.offered(self, self.lists)

    def _listed(self, lists: Lists, is_whole: bool) -> None:
        self._observer.offered(self, lists)
        if self._memory is not None and is_whole:
            self._memory.keep(
                Known(
                    lists,
                    dict(self.list_ttl_ms),
                    self.modern,
                    self.version,
                    self.capabilities,
                    self.instructions,
                    self.title,
                    self._era == self.settings.era,
                )
            )

    def _stepped(self) -> None:
        if self.is_base:
            self._observer.stepped(self)

    async def _live_once(self) -> str | None:
        """One life of the connection. Returns why it ended; None to begin another at once."""
        self._link.begin()
        self._listings.begin()
        questions = Questions(
            self.name,
            running=self._attribution.askable,
            beside=partial(self._observer.beside, self),
            roots=self.settings.roots_result,
            tasks=self.tasks,
            rest=self._traffic.gate.rest,
            heard=self.habits.asked,
        )
        life = Life(
            self.name,
            self.settings,
            self.transport,
            self._link,
            self._listings,
            self._notices,
            questions,
            self.wanted,
            client_info=self._client_info,
            era=self._era,
            assigned=self._assigned,
            to_declare=self._to_declare,
            agreed=self._agreed,
            retire_unused=self._repose.run,
        )
        try:
            return await life.live()
        finally:
            self._era = life.era
            self._has_agreed = False
            self._settle()

    def _agreed(self, session: UpstreamSession) -> None:
        self.modern, self.version = session.modern, session.version
        self.capabilities, self.instructions = session.capabilities, session.instructions
        title = session.server_info.get("title") or session.server_info.get("name")
        self.title = title[:_LONGEST_TITLE] if isinstance(title, str) else ""
        self._has_agreed = True
        self._settle()
        self._traffic.begin_anew()

    def _to_declare(self) -> ClientCapabilities:
        """What a session of the handshake era declares: also what the configuration answers."""
        return self.profile.with_roots() if self.settings.roots else self.profile


_LONGEST_TITLE = 200


def _declared(capabilities: object, *path: str) -> object:
    """What capabilities say of this member, at any depth; None: nothing."""
    for name in path:
        capabilities = cast("dict[str, object]", capabilities).get(name) if isinstance(capabilities, dict) else None
    return capabilities
