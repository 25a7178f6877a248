"""What one server offers: its lists as they came last; and whom its notifications concern.

`session` asks for the lists over all pages, `keepalive` decides when; here is what stays of them from one session to
the next. What belongs to a request goes there by its id already in `protocol/peer`; the rest is sorted here. What the
server says without naming a call (a log message, a question) belongs to a call that runs there, if no other can have
caused it. A call that was given up may still run at the server for a while; what comes then may be of that one, and is
put to nobody else.
"""

import asyncio
from collections.abc import Callable

from msgspec import Raw

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.core.elicitation import Elicitor
from mcpbridge.core.model import Call
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.upstream.session.keepalive import Keepalive
from mcpbridge.upstream.session.relisting import Relisting
from mcpbridge.upstream.session.session import UpstreamSession
from mcpbridge.upstream.session.tasks import TaskBook
from mcpbridge.upstream.settings import ServerSettings

log = get_logger("mcpbridge.upstream")

LIST_SECONDS = 10.0
"""Seconds that a start may take for its lists, once the server has agreed on a revision."""

Lists = dict[str, tuple[bytes, ...]]
"""What an upstream offers: kind (a key of `LIST_METHODS`) to its definitions, each as it came."""


class Listings:
    """The lists of one instance."""

    def __init__(self, name: str, settings: ServerSettings, publish: Callable[[Lists, bool], None] | None) -> None:
        """`publish` gets everything it offers, whenever it listed anew, and whether that is the whole.

        None: its lists do not count, so none is asked. That is so for all instances of a server but the first.
        """
        self.settings = settings
        """As they are now."""
        self._name, self._publish = name, publish
        self.are_known = False
        """It is known what it offers: it has listed, or is remembered from earlier."""
        self.lists: Lists = {}
        self.ttl_ms: dict[str, int] = {}
        """Milliseconds that the server says its lists stay fresh, by kind; of those that it says it of."""
        self.relisting = Relisting(name)
        """Which lists are to be read again."""
        self.is_relisting = False
        """What is published now was read again in a session: somebody may wait for it."""
        self._keepalive: Keepalive | None = None

    def recall(self, lists: Lists, ttl_ms: dict[str, int]) -> None:
        """It offered this when it was up last."""
        self.lists, self.ttl_ms, self.are_known = dict(lists), dict(ttl_ms), True

    def begin(self) -> None:
        """Another connection is opened: what was announced on the last one is seen anyway."""
        self._keepalive = None
        self.relisting.begin()

    def kept_alive_by(self, keepalive: Keepalive) -> None:
        """From now on `keepalive` reads what is stale, and first what has become so already."""
        self._keepalive = keepalive

    def acknowledged(self, params: Raw) -> None:
        """A listen stream is open: the server announces changes from now on."""
        if self._keepalive is not None:
            self._keepalive.acknowledged(params)

    async def first(self, session: UpstreamSession) -> None:
        """List everything for the first time in this session. What fails is left for later; all of it may not.

        Raises:
            UpstreamUnavailable: every list failed.
        """
        seconds = min(self.settings.init_timeout, LIST_SECONDS)
        troubles = await self._list(session, session.lists, seconds)
        if troubles and len(troubles) == len(session.lists):
            raise UpstreamUnavailable(self._name, "; ".join(troubles.values()))
        self.relisting.mark_stale(*troubles)

    async def again(self, session: UpstreamSession, kinds: list[str]) -> list[str]:
        """List these kinds anew and publish what came; returns those that failed."""
        return list(await self._list(session, kinds, self.settings.timeouts.idle, is_again=True))

    async def _list(
        self, session: UpstreamSession, kinds: list[str], seconds: float, *, is_again: bool = False
    ) -> dict[str, str]:
        """List these kinds and publish what came. Returns what failed, and why; of those the last list stays."""
        if self._publish is None:
            return {}
        if self.settings.auth.is_per_user:
            # They are of the one account that lists. Tools, prompts and templates are of the server.
            kinds = [kind for kind in kinds if kind != "resources"]
        listings = await asyncio.gather(*(session.list_all(kind, Timeouts(seconds, seconds)) for kind in kinds))
        failed: dict[str, str] = {}
        lists = {kind: self.lists.get(kind, ()) for kind in session.lists}
        for kind, listing in zip(kinds, listings, strict=True):
            if listing.trouble:
                failed[kind] = listing.trouble
                log.warning("listing failed", upstream=self._name, kind=kind, reason=listing.trouble)
            if not listing.trouble or not lists[kind]:
                lists[kind] = listing.entries
            self.ttl_ms.pop(kind, None)
            if listing.ttl_ms is not None:
                self.ttl_ms[kind] = listing.ttl_ms
        self.lists, self.are_known = lists, True
        self.is_relisting = is_again
        self._publish(lists, not failed)
        self.is_relisting = False
        return failed


STRAY_SECONDS = 10.0
"""Seconds after a call was given up during which what the server says may still be of that call."""


class Attribution:
    """The calls that run on one instance, and the last one that was given up."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self.running: dict[Call, None] = {}
        """Oldest first."""
        self._stray_until = float("-inf")
        self._stray_home: object = None
        """Whose call was given up last."""

    def given_up(self, call: Call) -> None:
        """Nobody waits for this call any more, but the server may still be at it."""
        self._stray_until, self._stray_home = self._clock() + STRAY_SECONDS, call.client.home

    def is_strange_to(self, client: Elicitor) -> bool:
        """The server may still be at a call that another client gave up: what it asks now may be of that one."""
        return self._clock() < self._stray_until and self._stray_home != client.home

    def askable(self, others: list[Call] | None = None) -> list[Call]:
        """The calls that a question may be of which names none: those that run, or these others.

        None when one is of a client that is strange to the server.
        """
        calls = list(self.running) if others is None else others
        return [] if any(self.is_strange_to(call.client) for call in calls) else calls

    @property
    def only_one(self) -> Call | None:
        """The call that whatever comes now is of, or the newest of the one client whose it is; None: not known."""
        calls = list(self.running)
        owner = calls[0].client.owner if calls else None
        is_one_clients = owner is not None and all(call.client.owner is owner for call in calls)
        return calls[-1] if len(calls) == 1 or is_one_clients else None

    @property
    def may_be_stray(self) -> bool:
        """What comes now may be of a call that was given up."""
        return self._clock() < self._stray_until


OnNotification = Callable[[Raw], None]
"""Gets the params of a notification."""


class NotificationRouter:
    """Takes the notifications of one instance; `heard` is its peer's `on_notification`."""

    def __init__(
        self,
        name: str,
        attribution: Attribution,
        listings: Listings,
        tasks: TaskBook,
        *,
        resource_updated: OnNotification,
        logged: OnNotification,
        elicitation_completed: OnNotification,
    ) -> None:
        """`logged` gets what is of no call; the others are of the whole server by their nature."""
        self._name, self._attribution, self._listings, self._tasks = name, attribution, listings, tasks
        self._resource_updated, self._logged = resource_updated, logged
        self._elicitation_completed = elicitation_completed

    def heard(self, method: str, params: Raw, via: bytes) -> None:
        """Take a notification to whom it concerns."""
        match method:
            case "notifications/tools/list_changed":
                self._listings.relisting.announced("tools")
            case "notifications/prompts/list_changed":
                self._listings.relisting.announced("prompts")
            case "notifications/resources/list_changed":
                self._listings.relisting.announced("resources", "templates")
            case "notifications/resources/updated":
                self._resource_updated(params)
            case "notifications/message":
                self._log_message(params)
            case "notifications/tasks/status":
                self._tasks.changed(params)
            case "notifications/progress":
                self._tasks.progressed(params)
            case "notifications/elicitation/complete":
                self._elicitation_completed(params)
            case "notifications/subscriptions/acknowledged":
                self._listings.acknowledged(params)
            case _:
                log.debug("notification ignored", upstream=self._name, method=method[:100])

    def _log_message(self, params: Raw) -> None:
        """To the call that it can only be of; to the server's listeners, if it can be of none that was given up."""
        if self._attribution.may_be_stray:
            return
        if call := self._attribution.only_one:
            call.update("notifications/message", params)
        else:
            self._logged(params)
