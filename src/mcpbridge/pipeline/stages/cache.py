"""Answer a call with the result that the same call had a moment ago; run concurrent identical calls once.

The results of a tool with `cache` are kept in memory. A hit needs the same tool as it is defined now, the same
arguments, the same principal (or anybody, as configured), and the same session if a server may know its clients apart.
Not kept: failures, questions, tasks, and what came of a client's answers, which is good for this once. A
write to a server, and any change of its lists, forgets all that is kept of it, at its start and at its end: what was
read beside a write goes to those who asked, and to nobody else.

Several bridges may agree on that (`SharedEpochs`): each keeps results of its own, and a write by way of one makes those
of all stale. Whether a result may be used is asked for each call then; where that cannot be known, none is. Those of a
fleet also run equal calls once (`SharedLeases`), as long as the calls are not of one session alone.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from hashlib import sha256
from math import inf
from typing import Any, cast

import anyio
from msgspec import Raw, Struct, structs
from msgspec.structs import replace

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.core.context import Cancellation
from mcpbridge.core.elicitation import NO_CAPABILITIES
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.pipeline.permissions.settings import ToolGlobs, names_of
from mcpbridge.pipeline.result_cache import (
    AskedAlone,
    CachedResult,
    CachedResults,
    Key,
    SharedEpochs,
    SharedLease,
    SharedLeases,
    SharedRun,
    SharedRuns,
    is_error,
    is_final,
)
from mcpbridge.pipeline.settings import CacheSettings
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.canonical_json import canonical, canonical_digest
from mcpbridge.protocol.peer import Update
from mcpbridge.upstream.settings import ServerSettings

CHANGE_SECONDS = 2.0
"""How long a write waits at most for the others to learn of it, once it is over."""
_PLAIN = {"name", "arguments", "_meta"}
_SPENT = object()


class _Use(Struct):
    """How the cache served one tool."""

    names: frozenset[str] = frozenset()
    """Of the tool, by which it can be dropped."""
    hits: int = 0
    misses: int = 0
    shared: int = 0


MOST_TOOLS = 10_000
"""Tools whose use is counted separately: a server that keeps renaming its tools must not fill the memory."""


class Cache:
    """Makes the stage of each tool that is cached, and of those whose calls make kept results stale."""

    def __init__(
        self,
        settings: CacheSettings,
        servers: Mapping[str, OfferSettings],
        calls: CallDefaults,
        *,
        clock: Callable[[], float] = time.monotonic,
        together: SharedEpochs | None = None,
        leases: SharedLeases | None = None,
    ) -> None:
        """`together`: what several bridges know of servers; None: this one is alone. `leases`: those of its fleet."""
        self.together, self.leases = together, leases
        self.settings, self._servers, self._calls, self.clock = settings, servers, calls, clock
        self.runs = SharedRuns()
        self.results = CachedResults(settings.max_bytes, settings.max_result)
        self._uses: dict[str, _Use] = {}
        """By tool; those whose stage was made longest ago first."""
        self._former = _Use()
        """Of tools that are not told apart any more, together."""
        self.epochs = Counter[str]()
        """By server; grows whenever what is known of it may not be true any more."""
        self._forgotten: dict[str, float] = {}
        """By server, when that was; known if other bridges run calls for this one."""
        self._offers: dict[str, object] = {}

    def configure(self, settings: CacheSettings, servers: Mapping[str, OfferSettings], calls: CallDefaults) -> None:
        """Other settings from now on. What is kept of a server stays, if they say the same of its calls."""
        for name in {*self._servers, *servers}:
            if _of_calls(self._servers.get(name)) != _of_calls(servers.get(name)):
                self.forget(name)
        if calls != self._calls:
            self.clear()
        self.settings, self._servers, self._calls = settings, servers, calls
        self.results.bound(settings.max_bytes, settings.max_result)

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """A stage for what is cached, and a smaller one for what may change what cached tools return."""
        if tool is None:
            return _Tasks(self) if any(map(self._is_used, self._servers)) else None
        if options.cache > 0:
            return _Cached(self, tool, options, self._servers.get(tool.server), self._use_of(tool))
        may_write = options.effect != "read" and not options.seems_read
        return _Write(self) if may_write and self._is_used(tool.server) else None

    def running(self) -> AbstractAsyncContextManager[None]:
        """Owns the runs that several calls wait for; leaving ends them."""
        return self.runs.running()

    # -- what makes results stale

    def forget(self, server: str) -> int:
        """What was kept of a server, and what is being read there, must not answer later calls."""
        self._next_epoch(server)
        return self.results.drop_server(server)

    def forgotten(self, server: str) -> float:
        """When something last made stale what is known of a server here: what was read before is for no later call."""
        return self._forgotten.get(server, -inf)

    def _next_epoch(self, server: str) -> None:
        self.epochs[server] += 1
        if self.leases is not None:
            self._forgotten[server] = self.clock()

    def offered(self, server: str, lists: object) -> None:
        """A server listed what it offers; if that is something else than before, the rest may be as well."""
        before = self._offers.get(server, _SPENT)
        self._offers[server] = lists
        if before is not _SPENT and before != lists:
            self.forget(server)

    def clear(self, server: str = "", tool: str = "") -> int:
        """Forget by hand: all, what is of one server, or of some tools. Says how many results.

        `tool` is a glob of ids (`server/tool`), or of names without their server; renamed tools go by either name.
        """
        for name in [server] if server else {*self._servers, *self.epochs}:
            self._next_epoch(name)  # runs under way, too; which tool they are of is not worth to be known

        meant = ToolGlobs([tool])

        def is_meant(cached: CachedResult) -> bool:
            if server not in ("", cached.server):
                return False
            use = self._uses.get(cached.tool)
            names = use.names if use is not None else (cached.tool.removeprefix(f"{cached.server}/"),)
            return not tool or meant.match(cached.server, names)

        return self.results.drop(is_meant)

    def status(self) -> dict[str, Any]:
        """What is kept and how it served, as JSON values."""
        sizes, uses = self.results.by_tool(self.clock()), [self._former, *self._uses.values()]
        return {
            "entries": len(self.results),
            "bytes": self.results.bytes,
            "max_bytes": self.settings.max_bytes,
            "hits": sum(use.hits for use in uses),
            "misses": sum(use.misses for use in uses),
            "shared": sum(use.shared for use in uses),
            "tools": [
                {
                    "tool": tool,
                    "entries": sizes.get(tool, (0, 0))[0],
                    "bytes": sizes.get(tool, (0, 0))[1],
                    "hits": use.hits,
                    "misses": use.misses,
                    "shared": use.shared,
                }
                for tool, use in sorted(self._uses.items())
            ],
        }

    def _use_of(self, tool: Tool) -> _Use:
        use = self._uses.pop(tool.id, None) or _Use()
        use.names = names_of(tool)
        self._uses[tool.id] = use
        if len(self._uses) > MOST_TOOLS:
            former = self._uses.pop(next(iter(self._uses)))
            self._former.hits += former.hits
            self._former.misses += former.misses
            self._former.shared += former.shared
        return use

    def _is_used(self, server: str) -> bool:
        settings = self._servers.get(server)
        if settings is None:
            return bool(self._calls.cache)
        own = [settings.cache, *(tool.cache for tool in settings.tool.values())]
        return bool(settings.cache if settings.cache is not None else self._calls.cache) or any(own)


_OF_LISTS: dict[str, object] = {"tools": None, "prompts": None, "resources": None, "title": None, "tags": None}
"""What says of a server only what is listed of it, and how it is found."""


def _of_calls(settings: OfferSettings | None) -> OfferSettings | None:
    return settings.model_copy(update=_OF_LISTS) if settings is not None else None


_SESSION = 3
"""Where a key has the session; empty: the result is good for other ones, too."""
_PROGRESS = "notifications/progress"
_RESOLUTION = 0.002
"""Seconds: how old a run is comes in whole milliseconds."""


_NOTICEABLE = 0.05
"""Seconds: what is shorter was no wait for another bridge."""


class _Elsewhere(Struct):
    """Whether a call was run by another bridge."""

    is_run: bool = False


def _progressed(lease: SharedLease, update: Update, method: str, params: Raw) -> None:
    """Progress also goes to the other bridges."""
    if method == _PROGRESS:
        lease.progressed(bytes(params))
    update(method, params)


def _plain(value: object) -> object:
    """What JSON does not know: the same in each process, though the order of sets differs."""
    return sorted(map(repr, cast("Iterable[object]", value))) if isinstance(value, set | frozenset) else repr(value)


class _Cached:
    """Stage: calls of one tool whose results are kept."""

    def __init__(self, cache: Cache, tool: Tool, options: CallOptions, server: OfferSettings | None, use: _Use) -> None:
        self._cache, self._id, self._seconds = cache, tool.id, options.cache
        self._definition = canonical_digest(tool.definition)
        self._is_shared = options.is_cache_shared
        self._is_apart = isinstance(server, ServerSettings) and not server.is_shared
        self._may_ask = not isinstance(server, ServerSettings) or server.questions == "auto"
        self._use = use
        self._server = server
        self._timeouts = options.timeouts
        self._setting: str | None = None
        """How the server is configured, once it is asked for."""

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        if call.continues or call.takes_task or call.instance is not None:
            return await proceed(call)
        cache, fields = self._cache, call.params.fields
        if not fields.keys() <= _PLAIN and ("requestState" in fields or "inputResponses" in fields):
            return await proceed(call)  # a later round of a question is a call of its own
        key = self._key(call)
        if cache.together is not None:
            since = await cache.together.current(call.upstream)
            if since is None:
                self._use.misses += 1
                call.note("cache", "miss")
                return await proceed(call)
            key = (*key, since)
        now = cache.clock()
        if (kept := cache.results.get(key, now)) is not None:
            self._use.hits += 1
            call.note("cache", "hit")
            call.original = kept.original
            return kept.marked(now)
        epoch = cache.epochs[call.upstream]
        shared = cache.runs.open((key, epoch))
        if shared is not None:
            call.runs_as = shared.call
            try:
                result = await shared.join(call.update)
            finally:
                call.runs_as = None
            if result is not None:
                self._use.shared += 1
                call.note("cache", "shared")
                return self._shared_result(call, result)
            self._use.misses += 1
            call.note("cache", "miss")
            return await proceed(call)
        self._use.misses += 1
        call.note("cache", "miss")
        run = partial(self._run, call, proceed, key, epoch)
        if cache.leases is None or cache.together is None or key[_SESSION]:
            return await cache.runs.lead((key, epoch), partial(run, None), call.update, call)
        elsewhere = _Elsewhere()
        led = partial(self._lead, cache.leases, elsewhere, call, key, epoch, run)
        result = await cache.runs.lead((key, epoch), led, call.update, call)
        return self._shared_result(call, result) if elsewhere.is_run else result

    def express_answer(self, call: Call) -> Raw | None:
        """See `pipeline/stage.py`. Plain are calls whose result is kept, where nobody has to be asked about that."""
        cache = self._cache
        now = cache.clock()
        if cache.together is not None or (kept := cache.results.get(self._key(call), now)) is None:
            return None
        call.note("cache", "hit")
        call.original = kept.original
        return Raw(kept.marked(now).data)

    def express_sent(self, call: Call, at: float) -> None:
        """See `pipeline/stage.py`: it was answered."""
        self._use.hits += 1

    async def _lead(
        self,
        leases: SharedLeases,
        elsewhere: "_Elsewhere",
        call: Call,
        key: Key,
        epoch: int,
        run: Callable[[SharedLease | None, SharedRun], Awaitable[Body]],
        shared: SharedRun,
    ) -> Body:
        """Run the call for all bridges, or have the result of the one that does, in a task that is not the call's."""
        cache, server = self._cache, call.upstream
        forgotten = cache.forgotten(server)
        clock = asyncio.get_running_loop().time
        began = heard = clock()

        def progress(params: bytes) -> None:
            nonlocal heard
            heard = clock()
            shared.update(_PROGRESS, Raw(params))

        def is_fresh(began: float, ended: float) -> bool:
            return cache.clock() - began - _RESOLUTION > forgotten and ended < self._seconds

        found = await leases.lead(
            [*key, self._configured()],
            server,
            key[-1],
            is_fresh=is_fresh,
            on_progress=progress,
        )
        if not isinstance(found, tuple) and (waited := clock() - began) > _NOTICEABLE:
            call.waited(waited)
            timeouts = self._timeouts or (self._server or OfferSettings()).timeouts
            call.deadline = heard + timeouts.idle  # whoever waited in vain has the rest of its time
        if found is None:
            return await run(None, shared)
        if not isinstance(found, tuple):
            shared.on_personal = found.give_up
            try:
                return await run(found, shared)
            finally:
                found.give_up()
        elsewhere.is_run = True
        self._use.misses -= 1
        self._use.shared += 1
        call.note("cache", "shared")
        data, age = found
        if age is not None and epoch == cache.epochs[server]:
            since = cache.clock() - age
            cache.results.put(key, CachedResult.of(server, self._id, data, since, since + self._seconds))
        return Body(data)

    async def _run(
        self, call: Call, proceed: CallHandler, key: Key, epoch: int, lease: SharedLease | None, shared: SharedRun
    ) -> Body:
        """Run the call, in a task that is not its own, and keep what comes of it."""
        cache = self._cache
        update = shared.update if lease is None else partial(_progressed, lease, shared.update)
        run = call.runs_as = structs.replace(call, update=update)
        if call.existing_context is not None:  # others may want its outcome when this client does not any more
            run.existing_context = replace(call.existing_context, cancellation=Cancellation())
        elicitor = None
        if call.client.capabilities is not NO_CAPABILITIES and call.client.capabilities:
            elicitor = run.client = AskedAlone(call, shared)
        try:
            result = await proceed(run)
        except asyncio.CancelledError:
            run.cancelled()
            raise
        finally:
            call.runs_as, call.running = None, run.running
        call.instance, call.progress_token, call.upstream_seconds = (
            run.instance,
            run.progress_token,
            run.upstream_seconds,
        )
        data = bytes(result.data)
        if not is_final(result, data):
            shared.be_personal()
            return result
        if (elicitor is not None and elicitor.was_asked) or is_error(result, data):
            return result
        if lease is not None:
            may_keep = epoch == cache.epochs[call.upstream]
            is_current = await lease.end(data, self._seconds, may_keep=may_keep)
        else:
            is_current = cache.together is None or await cache.together.current(call.upstream) == key[-1]
        if is_current and epoch == cache.epochs[call.upstream]:
            now = cache.clock()
            cache.results.put(key, CachedResult.of(call.upstream, self._id, data, now, now + self._seconds))
        return result

    def _shared_result(self, call: Call, result: Body) -> Body:
        now = self._cache.clock()
        call.original = bytes(result.data)
        kept = CachedResult.of(call.upstream, self._id, call.original, now, now + self._seconds)
        return kept.marked(now, is_shared=True)

    def _configured(self) -> str:
        """How the server is configured: another bridge may have other settings, or another server under the name."""
        if self._setting is None:
            server = self._server
            self._setting = "" if server is None else json.dumps(server.model_dump(), default=_plain, sort_keys=True)
        return self._setting

    def _key(self, call: Call) -> Key:
        """What must be the same for a result to be the same."""
        fields = call.params.fields
        caller = call.caller
        principal = "" if self._is_shared else f"p{caller.principal}"
        # Where the server may ask, what it finds out about one client (its roots, say) may show in later results.
        asked = call.client.capabilities
        is_own = self._is_apart or (self._may_ask and asked is not NO_CAPABILITIES and bool(asked))
        session = caller.session.id if is_own else ""
        rest = call.extensions.decode("latin-1")
        if len(fields) > len(_PLAIN & fields.keys()):
            rest += repr({name: canonical(value) for name, value in sorted(fields.items()) if name not in _PLAIN})
        if call.meta is not None:
            for name in self._cache.settings.vary:
                if (value := call.meta.get(name)) is not None:
                    rest += repr((name, canonical(value)))
        # As `canonical_digest`, which every call would enter.
        arguments = sha256(canonical(fields.get("arguments"))).hexdigest()
        return self._id, self._definition, principal, session, rest, arguments


class _Write:
    """Stage: calls that may change what cached tools of the same server return."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        self._cache.forget(call.upstream)
        together = self._cache.together
        if together is not None:
            await together.changed(call.upstream)
        try:
            return await proceed(call)
        finally:
            self._cache.forget(call.upstream)
            if together is not None:
                await _over(together, call)


async def _over(together: SharedEpochs, call: Call) -> None:
    """The others learn of it before whoever wrote does, though that one has left."""
    with anyio.move_on_after(CHANGE_SECONDS, shield=True):
        await together.changed(call.upstream)


class _Tasks:
    """Stage: requests about tasks, which may be writes that go on after their call was answered."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        return self._about_task(call, proceed) if call.method.startswith("tasks/") else proceed(call)

    async def _about_task(self, call: Call, proceed: CallHandler) -> Body:
        try:
            return await proceed(call)
        finally:
            self._cache.forget(call.upstream)
            if self._cache.together is not None:
                await _over(self._cache.together, call)
