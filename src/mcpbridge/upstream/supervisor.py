"""Keep one upstream connected. The only place that dials, reconnects and gives up.

One owner task an upstream opens its channel, holds the session and closes both in the same task, one connection after
the other (cancel scopes must be left by the task that entered them; python-sdk issues 79, 577, 922). Everybody else
uses the parts of the `Upstream` object: `requests` passes calls on, `connection` has its state, `declared` says for
whom it is, `usage` who uses it, `listings` what it offers.

A dead or slow upstream costs nobody else anything: no lock and no queue is shared between upstreams.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import Raw

from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities, Elicitor
from mcpbridge.core.model import Call
from mcpbridge.protocol.revisions import LATEST_LEGACY
from mcpbridge.protocol.transport import Transport
from mcpbridge.upstream.connection.connect import ConnectionAttempt
from mcpbridge.upstream.connection.connection import Connection, Status
from mcpbridge.upstream.connection.idle_stop import IdleStop, Usage
from mcpbridge.upstream.manifest import Known, Memory
from mcpbridge.upstream.requests import UpstreamRequests
from mcpbridge.upstream.session.asking_history import AskingHistory
from mcpbridge.upstream.session.capabilities import DeclaredProfile, declared_capability
from mcpbridge.upstream.session.elicitation import Questions
from mcpbridge.upstream.session.listings import Attribution, Listings, Lists, NotificationRouter
from mcpbridge.upstream.session.question_limits import QuestionLimits
from mcpbridge.upstream.session.session import UpstreamSession
from mcpbridge.upstream.session.subscriptions import Wanted
from mcpbridge.upstream.session.tasks import TaskBook
from mcpbridge.upstream.settings import ServerSettings

LONGEST_TITLE = 200
"""Characters of what a server calls itself."""


class Observer(Protocol):
    """Who wants to know what happens at an upstream. Called on the event loop; returns at once."""

    def offered(self, upstream: "Upstream", lists: Lists) -> None:
        """It listed anew; `lists` is everything it offers now."""
        ...

    def introduced(self, upstream: "Upstream") -> tuple[str, str]:
        """It said of itself what `own_instructions`, `own_title` and `identity` are.

        Returns the instructions and the title that clients get.
        """
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
        is_primary: bool = True,
        profile: ClientCapabilities = NO_CAPABILITIES,
        home: object = None,
        is_spare: bool = False,
        memory: Memory | None = None,
        history: AskingHistory | None = None,
        question_limits: QuestionLimits | None = None,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        """`is_primary`: its lists are the ones that count; of another instance of a server they are not asked for.

        `home`: the client or project whose own it is; None: everybody's. `profile`: what its sessions of the handshake
        era declare that can be asked. `is_spare`: it is connected to, and opened only once `DeclaredProfile.assign`
        gives it a profile. `memory`: what it offered when it was up last, and where that is kept; None: nowhere.
        `history`: what the server was seen to ask, `question_limits`: what it may ask. `redact` masks secrets.
        """
        self.name, self.transport = name, transport
        self.settings = settings
        """As they are now; see `configure`."""
        self.is_primary, self.home = is_primary, home
        self.is_shared = settings.is_shared
        self.restarts = 0
        self.version = ""
        """The revision of the last session; empty before the first."""
        self.capabilities: dict[str, Any] = {}
        """What it declared in its last session."""
        self.own_instructions = self.own_title = ""
        """What it said in its last session of how to use it, and what it called itself."""
        self.identity: dict[str, Any] = {}
        """Its name and version in its last session, as it sent them; empty before the first."""
        self.instructions = self.title = ""
        """The same as clients get it: see `Observer.introduced`."""
        self._observer, self._client_info, self._memory = observer, client_info, memory
        self._era = settings.era
        self._is_announced = False
        self.connection = Connection(name, settings, transport, stepped=self._stepped, redact=redact)
        """Its state and its session, and how to wait for one."""
        self.tasks = TaskBook(self.connection.over)
        """Tasks of a legacy server that somebody waits for."""
        self._attribution = Attribution()
        self.running: Collection[Call] = self._attribution.running
        """The calls that it works on now, oldest first."""
        self.usage = Usage(self.running, self.tasks)
        """Who uses it, and how long nobody has."""
        self.declared = DeclaredProfile(
            settings,
            transport,
            history or (memory.history if memory is not None else AskingHistory()),
            profile,
            is_primary=is_primary,
            is_spare=is_spare,
            replace_session=self._replace_session,
            limits=question_limits or QuestionLimits(name, settings),
        )
        """What its sessions declare that clients can be asked, and what follows from that."""
        self.listings = Listings(name, settings, self._listed if is_primary else None)
        """What it offers."""
        self.requests = UpstreamRequests(
            name,
            settings,
            self.connection,
            self._attribution,
            self.tasks,
            self.declared,
            self.usage,
            self.listings.relisting,
            redact,
        )
        """Passes calls on."""
        self.request = self.requests.request
        """See `UpstreamRequests.request`. Bound here, as every call would pay for one more function."""
        self.idle_stop = IdleStop(
            name, settings, self.connection, self.usage, is_primary=is_primary, is_remembered=memory is not None
        )
        """When it is stopped because nobody uses it."""
        self.wanted = Wanted(self.idle_stop.subscribers_changed)
        """What the clients want of it besides calls."""
        self._router = NotificationRouter(
            name,
            self._attribution,
            self.listings,
            self.tasks,
            resource_updated=partial(observer.resource_updated, self),
            logged=partial(observer.logged, self),
            elicitation_completed=partial(observer.elicitation_completed, self),
        )
        if memory is not None and memory.known is not None:
            self._recall(memory.known)

    def __repr__(self) -> str:
        return f"<Upstream {self.name!r} {self.connection.state_text}, {len(self.running)} running>"

    # -- its state

    @property
    def status(self) -> Status:
        """Its state, and why."""
        return self.connection.status

    @property
    def session(self) -> UpstreamSession | None:
        """Its session, while that is ready for calls."""
        return self.connection.session

    @property
    def has_settled(self) -> bool:
        """It is ready, or has failed at least once, or is known from earlier: waiting for it brings nothing new."""
        return self.connection.has_settled or (self._is_announced and self.is_known)

    def statistics(self) -> dict[str, Any]:
        """Its state in numbers, for people who look for a fault."""
        return {
            "state": self.status.state,
            "restarts": self.restarts,
            "running": len(self.running),
            "waiting": self.connection.waiting,
            "in_flight": self.connection.peer.in_flight if self.connection.peer is not None else 0,
            "tasks": len(self.tasks.calls),
            "subscriptions": len(self.wanted.uris),
            "breaker": self.requests.breaker_state,
            "braked": self.braked,
        }

    @property
    def braked(self) -> str:
        """What it sends so much of that the bridge reads it at intervals only: `list changes`, `messages`, or both.

        Empty: nothing.
        """
        peer = self.connection.peer
        is_flooding = peer is not None and peer.is_flooding
        kinds = {"list changes": self.listings.relisting.is_braked, "messages": is_flooding}
        return " and ".join(kind for kind, is_on in kinds.items() if is_on)

    async def tried(self) -> None:
        """Start it, though it may be known what it offers; return when it is ready or could not be started.

        Cancelling is safe: the start continues.
        """
        while self.session is None:
            if self.status.state == "idle" and not self.status.reason:
                self.connection.poke()
            elif self.connection.has_settled:
                return
            await self.connection.stepped()

    def announce(self) -> None:
        """Report to the observer its state and what it offers, as if that were news."""
        if self.session is not None or self.is_known:
            self._observer.offered(self, self.lists)
        self._stepped()

    async def look(self) -> None:
        """Start it if it is idle, only to see what it offers now; return when that is clear. Unused it ends soon.

        Cancelling is safe: the start continues.
        """
        if self.status.state != "idle":
            return
        self.idle_stop.is_looked_at, self._era = True, self.settings.era
        self.connection.poke()
        while self.status.state in ("idle", "starting"):
            await self.connection.stepped()
            if self.status.state == "idle":
                return  # it could not be started

    def introduce(self) -> None:
        """Have the observer decide anew what clients get of what it says of itself."""
        self.instructions, self.title = self._observer.introduced(self)

    def configure(self, settings: ServerSettings) -> None:
        """Continue with settings that leave it as it is: see `KEEPS` in `instances/reconfigure`."""
        self.settings = self.listings.settings = settings
        self.requests.adopt(settings.timeouts)
        self.declared.question_limits.configure(settings)

    # -- what it is and offers

    @property
    def lists(self) -> Lists:
        """What it offers, as it listed last."""
        return self.listings.lists

    @property
    def modern(self) -> bool:
        """The last session was of the modern era."""
        return self.declared.modern

    @property
    def is_known(self) -> bool:
        """What it offers and speaks is remembered, whether or not it runs."""
        return self._memory is not None and self._memory.known is not None

    @property
    def is_at_rest(self) -> bool:
        """It is idle or on its way up again, and what it speaks is known: nobody need wait to find that out."""
        return self.is_known and self.connection.starts_on_demand and self.status.state in ("idle", "starting")

    @property
    def seen(self) -> float:
        """Wall time when it was up last and listed, as far as that is remembered; 0: never."""
        return self._memory.seen if self._memory is not None else 0.0

    def lacks(self, *capability: str) -> bool:
        """It is known not to have declared this: `completions`, or `resources`, `subscribe`."""
        has_declared = self.session is not None or self.is_known
        return has_declared and declared_capability(self.capabilities, *capability) in (None, False)

    @property
    def may_ask_back(self) -> bool:
        """A result of it may be `input_required`: it is of the modern era, or that is not known yet."""
        return self.declared.modern or self.connection.session is None

    @property
    def runs_tasks(self) -> bool:
        """It takes calls of tools as tasks, as revision 2025-11-25 has them."""
        is_able = not self.modern and self.version >= LATEST_LEGACY
        return is_able and declared_capability(self.capabilities, "tasks", "requests", "tools", "call") is not None

    async def list_again(self, kind: str) -> None:
        """Ask it now what it offers of this kind; what it answers is published before this returns."""
        if (session := self.session) is not None:
            await self.listings.again(session, [kind])

    # -- its clients

    def serves(self, client: Elicitor) -> bool:
        """Calls of this client may go to this very instance; cheap. False: `Pool.serving` returns the right one."""
        if not self.is_shared:
            return False
        declared = self.declared
        if declared.modern or self.settings.questions == "never":
            return True
        is_plain = declared.profile is NO_CAPABILITIES
        return declared.suits(client.capabilities) and (is_plain or not self.requests.is_held_from(client))

    @property
    def has_missed_roots(self) -> bool:
        """It asked for roots, as many servers do first of all, when there was no client to ask."""
        return self.connection.questions is not None and self.connection.questions.has_missed_roots

    def roots_changed(self) -> None:
        """The roots of the clients behind it are others now, or can be asked for now."""
        if self.connection.questions is not None:
            self.connection.questions.has_missed_roots = False
        session = self.session
        if session is not None and not session.modern and session.profile.roots and not self.settings.roots:
            session.roots_changed()

    # -- tasks

    def cancel_task(self, id_: str) -> None:
        """Notify it that nobody wants the outcome of a task any more; if that fails, the task ends by itself."""
        if (session := self.session) is not None:
            session.cancel_task(id_)

    async def listen_to_tasks(self, ids: Sequence[str], heard: Callable[[str, Raw], None]) -> None:
        """Modern: hear of the news of these tasks, after an acknowledgement; returns when the server ends that.

        Raises:
            UpstreamError: it is not there, or refuses.
        """
        with self.usage.held():
            session = self.session or await self.connection.wait_for_session()
            await session.listen({}, [], heard, tasks=ids)

    # -- by a person

    def start(self) -> None:
        """Connect now, whatever the wait is; start it if it is idle."""
        self.connection.poke()

    def stop(self) -> bool:
        """End the connection, and the process of a `command`; the next call starts it again. False: it does not run."""
        if self.session is None:
            return False
        self.connection.retire()
        return True

    def restart(self) -> None:
        """Begin anew, with another connection and process; calls under way have a moment to end."""
        if (session := self.session) is not None:
            self.connection.renew(session)
        else:
            self.connection.poke()

    # -- the owner task

    async def run(self) -> None:
        """Own the connection until cancelled; that closes it, and ends the process of a `command`."""
        self._is_announced = True
        if self.is_known:
            self._observer.offered(self, self.lists)
        if self.settings.unavailable:
            return
        connection = self.connection
        if self.idle_stop.is_lazy and self.is_known:
            connection.leave()
        try:
            while True:
                if self.status.state == "idle":
                    await connection.rest()
                    self.declared.widen()
                await self._connect_and_pause()
        finally:
            connection.step(Status("stopped"))

    async def _connect_and_pause(self) -> None:
        """One connection, and the wait for the next one. It ends in one of three ways.

        1. Nobody needed it: it is idle. 2. It is to be opened anew at once, which is no failure. 3. It was lost: it
        becomes idle if nobody needs it, before the wait or after it, else another attempt follows.
        """
        connection = self.connection
        reason = await self._connect_once()
        self.idle_stop.is_looked_at = False
        if self.status.state == "idle":
            return
        if reason is None or connection.is_renewing:
            # The server is well: it did not bear the probe of its era or forgot our session.
            connection.is_renewing = False
            return
        self._era = self.settings.era if self.status.state == "starting" else self._era
        self.restarts += 1
        if self._is_dispensable:
            connection.leave(reason)
            return
        await connection.pause(reason)
        if self._is_dispensable:
            connection.leave()

    @property
    def _is_dispensable(self) -> bool:
        return self.listings.are_known and self.idle_stop.is_due

    async def _connect_once(self) -> str | None:
        """One connection until it ends. Returns why; None to begin another at once."""
        self.connection.begin()
        self.listings.begin()
        questions = Questions(
            self.name,
            running=self._attribution.askable,
            beside=partial(self._observer.beside, self),
            roots=self.settings.roots_result,
            tasks=self.tasks,
            rest=self.requests.limiter.rest,
            heard=self.declared.history.asked,
            bounds=self.declared.question_limits.refusal,
        )
        attempt = ConnectionAttempt(
            self.name,
            self.settings,
            self.transport,
            self.connection,
            self.listings,
            self._router,
            questions,
            self.wanted,
            self.declared,
            client_info=self._client_info,
            era=self._era,
            agreed=self._agreed,
            retire_unused=self.idle_stop.run,
        )
        try:
            return await attempt.run()
        finally:
            self._era = attempt.era
            self.declared.ended()

    def _agreed(self, session: UpstreamSession) -> None:
        self.version, self.capabilities = session.version, session.capabilities
        self.own_instructions, self.identity = session.instructions, session.server_info
        title = session.server_info.get("title") or session.server_info.get("name")
        self.own_title = title[:LONGEST_TITLE] if isinstance(title, str) else ""
        self.introduce()
        self.declared.agreed(modern=session.modern)
        self.requests.begin_anew()

    def _replace_session(self) -> None:
        session = self.session
        if session is not None and not session.modern:
            self.connection.renew(session)

    # -- what is remembered of it

    def _recall(self, known: Known) -> None:
        """It was so when it was up last."""
        self.listings.recall(known.lists, known.ttl_ms)
        self.version, self.capabilities = known.version, known.capabilities
        self.own_instructions, self.own_title = known.instructions, known.title
        self.introduce()
        if self._era == "auto" and not known.bears_probe:
            self._era = "legacy"
        self.declared.recall(modern=known.modern)

    def _listed(self, lists: Lists, is_whole: bool) -> None:
        self._observer.offered(self, lists)
        if self._memory is not None and is_whole:
            self._memory.keep(
                Known(
                    lists,
                    dict(self.listings.ttl_ms),
                    self.modern,
                    self.version,
                    self.capabilities,
                    self.own_instructions,
                    self.own_title,
                    self._era == self.settings.era,
                )
            )

    def _stepped(self) -> None:
        if self.is_primary:
            self._observer.stepped(self)
