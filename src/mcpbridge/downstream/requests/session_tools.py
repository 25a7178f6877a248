"""Tools that a program computes for one client or session, beside those of the catalog.

The program's resolver is asked once a session: when the session first lists tools or calls a name that the catalog
does not have. It is asked again after `forget`. Its tools are listed to that session only and called like every other
tool. Their ids are `tools/NAME`, so rules of the policy name them as they do others. A tool of the catalog with the
same name wins.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from weakref import WeakKeyDictionary, finalize

from msgspec import Struct

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import UnknownName
from mcpbridge.base.log import get_logger
from mcpbridge.catalog.listing.pagination import Listing
from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.core.context import Session
from mcpbridge.core.model import TOOLS, Call, Caller
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.backend import Backend, keeping_secrets

log = get_logger("mcpbridge.resolver")

_SECONDS = 10.0
"""How long a resolver may take; then the client has no extra tools for now, and it is asked again the next time."""


class ResolverContext(Struct, frozen=True):
    """For whom tools are computed."""

    session: Session
    client: str
    """`clientInfo.name`, as the client declared it."""
    principal: str
    """Who was authenticated; empty for the local user."""
    profile: str
    """The profile whose endpoint it came to; empty: none's."""
    run: str = ""
    """The run of the program that they are for; empty: of all that this session does."""


MOST = 1000
"""Sessions that have extra tools at a time; beyond that those that came first are asked for anew."""

Resolve = Callable[[ResolverContext], Awaitable[Sequence[Backend]]]
"""Gives the further tools of one client. Each backend runs until the session is over or resolved anew."""


class _SessionTools:
    """What one session has."""

    def __init__(self, backends: Sequence[Backend], builder: SnapshotBuilder) -> None:
        self.runs: dict[str, Backend] = {}
        tools = tuple(
            encode(dict(tool))
            for backend in backends
            for tool in backend.tools
            if self.runs.setdefault(str(tool["name"]), backend) is backend
        )
        self.snapshot: Snapshot = builder.build((Offer(TOOLS, tools),), {})
        self._lists: tuple[Listing, Listing] | None = None

    def beside(
        self, listing: Listing, catalog_tools: Mapping[str, ToolRef], hides: Callable[[ToolRef], bool] | None = None
    ) -> Listing:
        """The list with these in it, without those that `hides` names."""
        if self._lists is None or self._lists[0] is not listing or hides is not None:
            own = [
                entry
                for ref, entry in zip(self.snapshot.tools.values(), self.snapshot.entries("tools"), strict=True)
                if ref.wire not in catalog_tools and not (hides is not None and hides(ref))
            ]
            self._lists = listing, listing.of(sorted([*listing.entries, *own], key=lambda entry: entry.key))
        return self._lists[1]


class _RunningTools:
    """The extra tools of one session, while they run."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.over = asyncio.Event()
        self.listed: asyncio.Future[_SessionTools | None] = self._loop.create_future()

    def end(self) -> None:
        """The session is over, or asks anew."""
        if not self._loop.is_closed():
            self.over.set()

    def give_none(self) -> None:
        """There are none for now."""
        if not self.listed.done():
            self.listed.set_result(None)

    @property
    def now(self) -> _SessionTools | None:
        """What there is, if that is known by now."""
        is_known = self.listed.done() and not self.listed.cancelled()
        return self.listed.result() if is_known else None


class SessionTools:
    """The extra tools of all sessions. Its methods run on the event loop."""

    def __init__(self, resolve: Resolve | None, redact: Callable[[str], str] = lambda text: text) -> None:
        """`resolve` None: nobody has any. `redact` masks secrets in what the tools say."""
        self.resolve, self._redact = resolve, redact
        self._own: WeakKeyDictionary[Session, Resolve] = WeakKeyDictionary()
        self._held: WeakKeyDictionary[Session, _RunningTools] = WeakKeyDictionary()
        self._tasks = OwnedTasks()
        self._builder = SnapshotBuilder()

    def running(self) -> AbstractAsyncContextManager[None]:
        """Backends run meanwhile; leaving ends them."""
        return self._tasks.running()

    @property
    def are_any(self) -> bool:
        """Some session may have some."""
        return self.resolve is not None or bool(self._own)

    def give(self, session: Session, resolve: Resolve) -> None:
        """This session has a resolver of its own, in place of the one of all."""
        self._own[session] = resolve
        self.forget(session.id)

    def forget(self, session: str = "") -> None:
        """Ask the resolver again, of this session (its id) or of all. What it gave before ends."""
        for known in list(self._held):
            if session in ("", known.id):
                self._held.pop(known).end()

    async def listing(
        self,
        caller: Caller,
        listing: Listing,
        catalog_tools: Mapping[str, ToolRef],
        hides: Callable[[ToolRef], bool] | None = None,
    ) -> Listing:
        """The list that this client gets; `catalog_tools`: the catalog's tools by wire name.

        `hides`: extra tools that there are not for this client; None: none.
        """
        extra = await self._of(caller)
        return extra.beside(listing, catalog_tools, hides) if extra is not None else listing

    async def find(self, caller: Caller, name: str) -> ToolRef | None:
        """The extra tool of this name; None: this client has none."""
        extra = await self._of(caller)
        try:
            return extra.snapshot.tool(name) if extra is not None else None
        except UnknownName:
            return None

    async def refs(self, caller: Caller) -> Mapping[str, ToolRef]:
        """What this client has besides, by wire name."""
        extra = await self._of(caller)
        return extra.snapshot.tools if extra is not None else {}

    def run_of(self, call: Call) -> Backend | None:
        """Who does the work of a call, if an extra tool of its session is called."""
        held = self._held.get(call.caller.session)
        extra = held.now if held is not None else None
        return extra.runs.get(call.target) if extra is not None else None

    async def _of(self, caller: Caller) -> _SessionTools | None:
        session = caller.session
        resolve = self._own.get(session, self.resolve) if self._own else self.resolve
        if resolve is None:
            return None
        held = self._held.get(session)
        if held is None:
            if len(self._held) >= MOST:
                self._held.pop(next(iter(self._held))).end()
            held = self._held[session] = _RunningTools()
            finalize(session, held.end).atexit = False  # by then there is no loop in which something could end
            context = ResolverContext(session, caller.name, caller.principal, caller.profile_name, session.run)
            if self._tasks.spawn(_hold(resolve, context, held, self._builder, self._redact)) is None:
                return None  # the bridge ends
        extra = await asyncio.shield(held.listed)
        if extra is None and self._held.get(session) is held:  # it failed: it is asked again the next time
            self._held.pop(session).end()
        return extra


async def _hold(
    resolve: Resolve,
    context: ResolverContext,
    held: _RunningTools,
    builder: SnapshotBuilder,
    redact: Callable[[str], str],
) -> None:
    """Ask the resolver and run what it gives, until the session is over."""
    async with AsyncExitStack() as stack:
        try:
            try:
                async with asyncio.timeout(_SECONDS):
                    backends = [keeping_secrets(backend, redact) for backend in await resolve(context)]
                begun = [backend for backend in backends if await _begins(backend, stack)]
                held.listed.set_result(_SessionTools(begun, builder))
            except Exception as error:  # the program's own code; its client must get a list all the same
                log.error("the resolver failed", client=context.client[:100], exc_info=error)
                held.give_none()
            except asyncio.CancelledError:
                held.give_none()
                raise
            del context  # so that the end of the session is noticed
            await held.over.wait()
        except GeneratorExit:  # the loop has ended without this task: nothing can be waited for, so nothing is ended
            stack.pop_all()
            raise


async def _begins(backend: Backend, stack: AsyncExitStack) -> bool:
    """Whether a backend runs now; one that cannot begin takes no other with it."""
    try:
        async with asyncio.timeout(_SECONDS):
            await stack.enter_async_context(backend.running(lambda: None))
    except Exception as error:
        log.error("a backend of the resolver failed to start", exc_info=error)
        return False
    return True
