"""Calls whose client stopped waiting: they continue, and their results are kept for it.

A client's patience often ends before a tool's work does. Such a call is not cancelled, and not lost: it runs on, up to
its own deadlines, and its result is kept under a handle, for the principal that made the call. The same call made again
(same tool, same arguments) joins the one that still runs, or gets the kept result. Once: the next one runs anew, since
whoever asks a second time may want to know how things are now. By its handle a result can be read until it expires.

In a fleet, the store also has an entry for each kept result, since the session may move to another bridge. That one
looks for the entries of a session once, when it takes the session over (`came_over`), and knows them from then on like
its own. So no call asks the store whether something is late. Whoever gives a result takes its entry first, so that it
is given once in the whole fleet. While the store is away nothing is found, and the call is made anew.

Who stopped waiting, and who can be notified, is the business of `downstream/requests/timeouts.py`.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import StoreFailed, UpstreamError, UpstreamTimeout
from mcpbridge.base.log import get_logger
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import LONGEST_SECONDS
from mcpbridge.core.context import Session
from mcpbridge.core.jobs import Job, Jobs
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.pipeline.input_required import needs_driving
from mcpbridge.pipeline.stage import Stage, Trigger
from mcpbridge.pipeline.task_results import is_task
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.canonical_json import canonical_digest
from mcpbridge.results.kept_results import RESULTS, ResultSummary
from mcpbridge.storage.store import Entry, Store, new_handle

log = get_logger("mcpbridge.late")

LATE_META = "mcpbridge/late"
"""In `_meta` of a result that an earlier call brought: its `handle` and `finishedAt`."""
MAX_LATE = 32
"""Abandoned calls of one principal, running and kept; for a further one the oldest kept result is forgotten."""

_CANCELLED = "the call that this one joined was cancelled; check whether it took effect before you repeat it"
_RUNS_STILL = "The same call, made earlier, still runs. Make it again later to get its result; it is not run twice."

_Key = tuple[str, str, str, str]
"""Tool, principal, session, and the digest of the arguments."""

LATE = "late"
"""The kind of value in the store that bridges of a fleet find kept results by. It has the handle of the result."""


class LateEntry(Struct, frozen=True):
    """What is known of a kept result beside its handle. Kept as JSON, so new fields need defaults."""

    session: str
    """The digest of its name: whoever sees the entry must not be able to use the session."""
    tool: str
    arguments: str
    """Their digest."""
    at: float
    """When the call was finished; seconds since 1970."""


class AbandonedCall(Job):
    """A call that nobody waits for, or its result. Its id is the handle under which the result is kept."""

    __slots__ = ("call", "finished_at", "is_shared")

    key: _Key

    def __init__(self, call: Call | None, key: _Key, handle: str = "") -> None:
        super().__init__(key[1], key, handle or new_handle())
        self.call = call
        """The one that goes on without its client; None: it is over."""
        self.finished_at = 0.0
        """Seconds since 1970; 0 while it runs."""
        self.is_shared = False
        """Other bridges may give it, too: who takes its entry in the store does."""


class AbandonedCalls:
    """Makes the stages: knows the late calls, and answers the same calls made again."""

    def __init__(
        self,
        store: Store,
        servers: Mapping[str, OfferSettings],
        options: Callable[[Tool], CallOptions],
        lifetime: float,
        *,
        together: Store | None = None,
    ) -> None:
        """`lifetime`: seconds that a result is kept.

        `together`: the store of bridges between which sessions move, whose methods fail while it is away. An entry in
        the memory of one of them would be one more than the store may have all the same. None: there are no others.
        """
        self.store, self._together = store, together
        self.configure(servers, options, lifetime)
        self.known = Jobs[AbandonedCall](per_owner=MAX_LATE)
        """What the same call gets when it is made again: the oldest first, each once."""

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """One for tools whose late results are kept."""
        if tool is None or options.late != "keep":
            return None
        server = self._servers.get(tool.server)
        timeouts = options.timeouts or (server.timeouts if server is not None else None)
        return _Again(self, timeouts.total if timeouts is not None else LONGEST_SECONDS)

    def configure(
        self, servers: Mapping[str, OfferSettings], options: Callable[[Tool], CallOptions], lifetime: float
    ) -> None:
        """Other settings from now on; what is late already stays known."""
        self._servers, self._options, self.lifetime = servers, options, lifetime

    # -- for who knows that a client stopped waiting

    def begin(self, call: Call) -> AbandonedCall | None:
        """From now on a call continues without its client. None: it is not to, so it should be cancelled."""
        if (abandoned := self._running(call)) is not None:
            return abandoned
        if call.tool is None or call.takes_task or self._options(call.tool).late != "keep":
            return None
        if not self._has_room(call.caller.principal):
            return None
        abandoned = self.known.add(AbandonedCall(call, self._key(call, call.tool)))
        log.info("client stopped waiting; the call continues", tool=call.tool.id, handle=abandoned.id)
        return abandoned

    async def finished(self, call: Call, result: Body) -> AbandonedCall | None:
        """A late call has a result. Returns what is kept for later; None: nothing is, or the same call waits for it.

        What is no success, or asks back, is not kept; nor what is cancelled before it is. Those who wait for it get it.
        """
        abandoned, data = self._running(call), bytes(call.original or result.data)
        assert abandoned is not None, "the call continues without its client"
        abandoned.call, abandoned.finished_at = None, time.time()
        is_kept = False
        try:
            is_kept = (
                _is_worth_keeping(result)
                and await self._keep(abandoned, data, call.caller.session.name)
                and not abandoned.waiting
            )
        finally:  # the storing may be cancelled: nobody must wait for it then
            if is_kept:
                self.known.forget_in(abandoned, self.lifetime)
            else:
                self.known.forget(abandoned)
            abandoned.finish(b"" if is_kept else data)  # what is kept is in the store, and not in memory
        if self._together is not None and abandoned.is_shared and not is_kept:  # it was given to whoever waited for it
            with suppress(StoreFailed):
                await self._together.drop(LATE, abandoned.id, principal=abandoned.owner)
        return abandoned if is_kept else None

    def failed(self, call: Call, error: Exception | None = None) -> None:
        """A late call ended without a result; nothing if it had one. Those who wait for it get the error."""
        abandoned = self._running(call)
        if abandoned is not None:
            abandoned.call = None
            self.known.forget(abandoned)
            abandoned.fail(error or UpstreamError(call.upstream, _CANCELLED))

    def end(self) -> None:
        """The bridge stops."""
        self.known.clear()

    def _running(self, call: Call) -> AbandonedCall | None:
        return next((abandoned for abandoned in self.known.of(call.caller.principal) if abandoned.call is call), None)

    # -- for who takes a session over

    async def came_over(self, principal: str, session: Session) -> None:
        """This bridge has a session that another one of the fleet had: know what is kept for it.

        Before its first call here. What the former bridge keeps later, as it was only taken for dead, can be read by
        its handle alone. Cancelling is safe.
        """
        if self._together is None or not session.name:
            return
        own, entries = _digest(session.name), list[Entry]()
        with suppress(StoreFailed):
            entries = await self._together.entries(LATE, principal=principal)
        for entry in entries:
            try:
                found = _entries.decode(entry.label)
            except msgspec.MsgspecError:  # of another version
                continue
            if found.session != own or not self._has_room(principal):
                continue
            key = found.tool, principal, session.id, found.arguments
            abandoned = self.known.add(AbandonedCall(None, key, entry.handle))
            abandoned.finished_at, abandoned.is_shared = found.at, True
            abandoned.finish(b"")
            self.known.forget_in(abandoned, max(0.0, entry.expires - time.time()))

    # -- for the same call, made again

    def find(self, call: Call) -> AbandonedCall | None:
        """The late call that this one repeats."""
        if call.tool is None or call.takes_task or call.continues or "requestState" in call.params:
            return None
        return self.known.find(self._key(call, call.tool))

    async def fetch(self, abandoned: AbandonedCall, seconds: float) -> bytes | None:
        """Its result, waiting for it if need be, for so many seconds; None when it is there no more.

        Raises:
            UpstreamTimeout: it still runs.
            BridgeError: what it failed with.
        """
        if not await abandoned.wait(seconds):
            error = UpstreamTimeout(abandoned.key[0].partition("/")[0], seconds)
            error.advice = _RUNS_STILL
            raise error
        data: bytes = abandoned.result()
        self.known.forget(abandoned)
        if data:
            return data
        if self._together is not None and abandoned.is_shared:
            try:
                if await self._together.take(LATE, abandoned.id, principal=abandoned.owner) is None:
                    return None  # another bridge gave it
            except StoreFailed:
                pass  # what is here still is given: twice does less harm than to do the same again
        return await self.store.get(RESULTS, abandoned.id, principal=abandoned.owner)

    async def _keep(self, abandoned: AbandonedCall, data: bytes, session: str) -> bool:
        """`session`: what other bridges know it by; empty: it does not move."""
        summary = ResultSummary(abandoned.id, abandoned.key[0], at=abandoned.finished_at)
        label = msgspec.json.encode(summary)  # whose roles open this tool may read it
        try:
            await self.store.put(
                RESULTS, data, principal=abandoned.owner, expires_in=self.lifetime, handle=abandoned.id, label=label
            )
        except StoreFailed as error:
            log.warning("a late result cannot be stored", tool=abandoned.key[0], reason=str(error))
            return False
        if self._together is not None and session:
            try:
                await self._share(abandoned, session, self._together)
            except StoreFailed as error:  # perhaps it was written all the same
                log.warning("a late result is found by its handle alone", tool=abandoned.key[0], reason=str(error))
        return True

    async def _share(self, abandoned: AbandonedCall, session: str, together: Store) -> None:
        tool, principal, _, arguments = abandoned.key
        entry = msgspec.json.encode(LateEntry(_digest(session), tool, arguments, abandoned.finished_at))
        abandoned.is_shared = True  # it may be there even if this is cancelled
        await together.put(LATE, entry, principal=principal, expires_in=self.lifetime, handle=abandoned.id, label=entry)

    def _has_room(self, principal: str) -> bool:
        if self.known.has_room(principal):
            return True
        kept = [abandoned for abandoned in self.known.of(principal) if abandoned.finished_at]
        if kept:
            self.known.forget(min(kept, key=lambda abandoned: abandoned.finished_at))
        return bool(kept)

    def _key(self, call: Call, tool: Tool) -> _Key:
        """What must be the same for a call to be the same.

        The session too: what another client of the same principal calls with the same arguments may be meant as a
        second deed, and only the one that gave up knows of the first.
        """
        caller = call.caller
        return tool.id, caller.principal, caller.session.id, canonical_digest(call.params.get("arguments"))


class _Again:
    """Stage: answers a call that repeats a late one. `seconds`: how long it waits for one that still runs."""

    def __init__(self, abandoned: AbandonedCalls, seconds: float) -> None:
        self._abandoned, self._seconds = abandoned, seconds
        self.trigger = Trigger(while_any=abandoned.known.all)

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        """No coroutine of its own while nothing is late: every call would pay for it."""
        if not self._abandoned.known.all or call.sent is not None:  # it was sent when nothing was late
            return proceed(call)
        abandoned = self._abandoned.find(call)
        return proceed(call) if abandoned is None else self._fetch(abandoned, call, proceed)

    async def _fetch(self, abandoned: AbandonedCall, call: Call, proceed: CallHandler) -> Body:
        data = await self._abandoned.fetch(abandoned, self._seconds)
        if data is None:
            return await proceed(call)
        call.note("late", abandoned.id)
        call.note("recalled", abandoned.id)
        call.original = data
        return _with_mark(Body(data), abandoned)


_entries = msgspec.json.Decoder(LateEntry)


def _digest(session: str) -> str:
    return sha256(session.encode("utf-8", "surrogatepass")).hexdigest()


def _is_worth_keeping(result: Body) -> bool:
    """A success, and the final one."""
    has_failed = b'"isError"' in bytes(result.data) and bytes(result.get("isError") or b"") == b"true"
    return not has_failed and not needs_driving(result) and not is_task(result)


def _with_mark(result: Body, abandoned: AbandonedCall) -> Body:
    """The result, saying that an earlier call brought it."""
    meta = result.inner("_meta") or Body()
    finished = datetime.fromtimestamp(abandoned.finished_at or time.time(), UTC).isoformat(timespec="seconds")
    meta.put(LATE_META, {"handle": abandoned.id, "finishedAt": finished})
    result.put("_meta", meta)
    return result
