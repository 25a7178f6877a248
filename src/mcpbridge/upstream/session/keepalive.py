"""What a live session needs besides calls: fresh lists, signs of life, subscriptions, a log level.

Lives as long as its session. What clients want (`Wanted`) outlives it, so a new session is brought to the same state.

Lists whose changes the server does not announce are asked for anew by the time that the server says they stay fresh
(`ttlMs`), with jitter, so that many bridges do not ask at once (MCP 2026-07-28, Caching, Freshness Calculation). That
is a hint for caches and no wish to be asked so often, hence the bounds.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import anyio
import msgspec
from msgspec import Raw, Struct, field

from mcpbridge.base.errors import BridgeError, SessionExpired, UpstreamAnswered, UpstreamHttpError
from mcpbridge.base.log import get_logger
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.protocol.peer import Peer
from mcpbridge.upstream.session.relisting import Relisting
from mcpbridge.upstream.session.session import UpstreamSession
from mcpbridge.upstream.session.subscriptions import Wanted
from mcpbridge.upstream.settings import ServerSettings

SHORTEST = 60.0
"""Seconds; never more often than that, whatever the server says."""
UNSAID = 300.0
"""Seconds, where it says nothing or that the list is stale at once, which is no time to go by."""
LONGEST = 24 * 3600.0
"""Seconds."""
JITTER = 0.25
"""Share of the wait that is added at random, at most."""


def wait_before_looking(ttl_ms: int | None, chance: float) -> float:
    """Seconds to wait. `ttl_ms` is the server's hint, None when there is none; `chance` is from 0 to 1, at random."""
    seconds = min(max(ttl_ms / 1000, SHORTEST), LONGEST) if ttl_ms else UNSAID
    return seconds * (1 + JITTER * chance)


log = get_logger("mcpbridge.upstream")

PING_MISSES = 3
"""Pings in a row without an answer after which the upstream counts as hung."""
RETRY_DELAY = 5.0
"""Seconds before something that failed is tried again: listing, subscribing, a missed ping."""
ACKNOWLEDGE_SECONDS = 5.0
"""Seconds for a server to acknowledge a listen stream, after which it counts as open all the same."""


class Keepalive:
    """Looks after one session until cancelled."""

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        session: UpstreamSession,
        peer: Peer,
        wanted: Wanted,
        *,
        relisting: Relisting,
        relist: Callable[[list[str]], Awaitable[list[str]]],
        lost: Callable[[str], None],
        expired: Callable[[], None],
        heard: Callable[[str, Raw, bytes], None],
        ttl_ms: Mapping[str, int],
    ) -> None:
        """`relisting` says which lists are to be read again; `relist` reads them and returns the kinds that failed.

        `lost` and `expired` end the session.

        `ttl_ms`: how long the server says its lists stay fresh, by kind, kept up to date by whoever lists.
        """
        self._name, self._settings, self._session, self._peer = name, settings, session, peer
        self._wanted = wanted
        self._relist, self._lost, self._expired, self._heard = relist, lost, expired, heard
        self._loop = asyncio.get_running_loop()
        self._relisting = relisting
        self._ttl_ms = ttl_ms
        offers = session.offers_changes
        self._unannounced = {kind for kind in session.lists if not offers(_ANNOUNCED_AS[kind])}

    async def run(self) -> None:
        """Do all of it side by side."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_listed)
            tasks.start_soon(self._keep_pinged)
            tasks.start_soon(self._keep_listening if self._session.modern else self._keep_subscribed)
            for kind in self._session.lists if self._session.modern else ():
                tasks.start_soon(self._keep_polled, kind)

    def acknowledged(self, params: Raw) -> None:
        """A listen stream is open. Changes before this moment were announced to nobody: look once more."""
        offers, honoured = self._session.offers_changes, _honoured(params)
        offered = {kind for kind in self._session.lists if offers(_ANNOUNCED_AS[kind])}
        self._unannounced = {kind for kind in self._session.lists if _ANNOUNCED_AS[kind] not in honoured} | (
            set(self._session.lists) - offered
        )
        self._relisting.mark_stale(*offered)

    async def _keep_listed(self) -> None:
        relisting = self._relisting
        while True:
            kinds = await relisting.next_kinds(self._session.lists)
            failed = await self._relist(kinds)
            relisting.finished()
            if failed:
                self._loop.call_later(RETRY_DELAY, partial(relisting.mark_stale, *failed))

    async def _keep_polled(self, kind: str) -> None:
        """Modern: look at a list from time to time, as long as its changes are not announced."""
        while True:
            await anyio.sleep(wait_before_looking(self._ttl_ms.get(kind), random.random()))
            if kind in self._unannounced:
                self._relisting.mark_stale(kind)

    async def _keep_pinged(self) -> None:
        """Find out that a silent server hangs. A server that works on a call is not silent, only busy."""
        interval = self._settings.ping_interval
        misses = 0
        while interval:
            quiet = self._loop.time() - self._peer.last_heard
            if quiet < interval or self._peer.in_flight > self._session.standing_requests:
                misses = 0 if quiet < interval else misses
                await anyio.sleep(max(interval - quiet, min(interval, 1.0)))
                continue
            try:
                await self._session.ping()
                misses = 0
            except SessionExpired:
                self._expired()
                return
            except BridgeError as error:
                if isinstance(error, UpstreamHttpError) and error.status < 500:
                    misses = 0  # a refusal is a sign of life
                else:
                    misses += 1
                    log.info("no answer to ping", upstream=self._name, misses=misses, error=str(error))
                if misses >= PING_MISSES:
                    self._lost(f"it hangs: {misses} pings in a row had no answer")
                    return
                await anyio.sleep(min(interval, RETRY_DELAY))

    async def _keep_listening(self) -> None:
        """Modern: one `subscriptions/listen`, opened anew when the URIs change or the stream ends.

        The new one is open before the old one is closed: lists are looked at again, but a resource that changes while
        nobody listens would stay unheard of.
        """
        wanted = self._wanted
        kinds = {kind: self._session.offers_changes(kind) for kind in ("tools", "prompts", "resources")}
        held: _Listening | None = None
        delay = 0.5
        async with anyio.create_task_group() as tasks:
            while True:
                wanted.changed.clear()
                uris = sorted(wanted.uris) if self._session.has_subscriptions else []
                if not self._session.has_subscriptions:
                    wanted.follow(wanted.uris)  # it never tells of any: nobody need wait
                if held is not None and held.ended.is_set():
                    delay = await self._pause(delay, held)
                    held = None
                    continue
                if held is not None and held.uris == uris:
                    if held.is_open:
                        wanted.follow(uris)  # one that nobody wanted for a moment
                    await wanted.changed.wait()  # also when it ends; a log level concerns requests
                    continue
                last, held = held, None
                if uris or any(kinds.values()):
                    held = _Listening(uris, self._loop.time(), before=last if last and last.is_open else None)
                    tasks.start_soon(self._listen_once, kinds, held)
                if last is not None and held is not None:
                    with anyio.move_on_after(ACKNOWLEDGE_SECONDS):
                        await held.opened.wait()
                if last is not None:
                    if held is not None and held.ended.is_set():  # maybe the server bears only one at a time
                        delay = await self._pause(delay, held)
                    last.scope.cancel()
                    await last.ended.wait()
                if held is None:
                    await wanted.changed.wait()

    async def _pause(self, delay: float, ended: "_Listening") -> float:
        """Wait before a listen stream is opened in place of one that ended; longer each time. Returns the wait."""
        delay = 0.5 if self._loop.time() - ended.began > 60 else min(60.0, delay * 2)
        await anyio.sleep(delay * random.uniform(0.5, 1))
        return delay

    async def _listen_once(self, kinds: dict[str, bool], listening: "_Listening") -> None:
        def heard(method: str, params: Raw) -> None:
            is_first = not listening.opened.is_set()  # the acknowledgement
            listening.opened.set()
            self._heard(method, params, b"")
            if is_first:
                self._follow(listening.uris, followed_before=listening.followed_before())

        with listening.scope:
            try:
                await self._session.listen(kinds, listening.uris, heard)
            except BridgeError as error:
                log.info("listen stream ended", upstream=self._name, error=str(error))
        listening.ended.set()
        listening.opened.set()
        listening.before = None
        self._wanted.changed.set()

    def _follow(self, uris: list[str], *, followed_before: Sequence[str] = ()) -> None:
        """The server tells of these resources from now on. What it told before is lost if nobody listened meanwhile.

        So such a change is told now, whether there was one or not: it means "look again". But not of those that another
        stream told of until now.
        """
        for uri in uris:
            if uri in self._wanted.followed and uri not in followed_before:
                self._heard("notifications/resources/updated", Raw(encode({"uri": uri})), b"")
        self._wanted.follow(uris)

    async def _keep_subscribed(self) -> None:
        """Legacy: the server's subscriptions and log level are brought to what the clients want."""
        subscribed: set[str] = set()
        level = ""
        wanted, session, seconds = self._wanted, self._session, self._settings.timeouts.idle
        while True:
            wanted.changed.clear()
            try:
                if session.has_subscriptions:
                    wanted.follow(subscribed)  # one that nobody wanted for a moment
                    for uri in sorted(set(wanted.uris) - subscribed):
                        await _unless_refused(self._name, session.subscribe(uri, seconds))
                        subscribed.add(uri)
                        self._follow([uri])
                    for uri in sorted(subscribed - set(wanted.uris)):
                        await _unless_refused(self._name, session.unsubscribe(uri, seconds))
                        subscribed.discard(uri)
                else:
                    wanted.follow(wanted.uris)  # it never tells of any: nobody need wait
                if (asked := wanted.log_level) != level and session.declares("logging"):
                    await _unless_refused(self._name, session.set_log_level(asked, seconds))
                    level = asked  # another may be wanted by now
                wanted.level_sent(asked)
            except BridgeError as error:
                log.info("subscribing failed", upstream=self._name, error=str(error))
                await anyio.sleep(RETRY_DELAY)
                continue
            await wanted.changed.wait()


class _Listening(Struct, eq=False):
    """One listen stream, from the request for it to its end."""

    uris: list[str]
    began: float
    before: "_Listening | None"
    """The stream that was open when this one was asked for, and stays so until this one is."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    opened: anyio.Event = field(default_factory=anyio.Event)
    """The server has said something on it, or it is over."""
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_open(self) -> bool:
        """The server tells of its resources."""
        return self.opened.is_set() and not self.ended.is_set()

    def followed_before(self) -> list[str]:
        """Resources that the server has told of without a gap until now, when this stream is opened."""
        before, self.before = self.before, None  # else each would hold all those before it
        return before.uris if before is not None and not before.ended.is_set() else []


_ANNOUNCED_AS = {"tools": "tools", "prompts": "prompts", "resources": "resources", "templates": "resources"}
"""Kind of list to the kind that a change of it is announced as."""


class _Acknowledged(msgspec.Struct):
    notifications: dict[str, object] = {}


_decode_acknowledged = msgspec.json.Decoder(_Acknowledged).decode


def _honoured(params: Raw) -> set[str]:
    """The kinds of lists whose changes a server promised to announce; all of them when it does not say clearly."""
    try:
        promised = _decode_acknowledged(params).notifications
    except msgspec.DecodeError:
        return set(_ANNOUNCED_AS.values())
    return {kind for kind in _ANNOUNCED_AS.values() if promised.get(f"{kind}ListChanged") is True}


async def _unless_refused(name: str, request: Awaitable[None]) -> None:
    """Wait for a request; a refusal by the server is final and only logged."""
    try:
        await request
    except UpstreamAnswered as error:
        log.info("server refused", upstream=name, error=error.error[:200].decode("utf-8", "replace"))
