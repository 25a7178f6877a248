"""Build what finding tools needs: what each client is listed, the search, and the tools that find and call."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from mcpbridge.base.errors import ArgumentsRefused, ConfigError, UnknownName
from mcpbridge.base.log import get_logger
from mcpbridge.catalog.definitions.check import Kind
from mcpbridge.catalog.listing.exposure import Exposure
from mcpbridge.catalog.listing.profiles import Scope
from mcpbridge.catalog.listing.tool_lists import Exposing
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.search.ranker import ServerText, ToolText
from mcpbridge.catalog.search.service import SavedBytes, Searching
from mcpbridge.catalog.search.visible_tools import VisibleTools
from mcpbridge.catalog.settings import RouterSettings
from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.config.schema import Settings
from mcpbridge.core.elicitation import Elicitor
from mcpbridge.core.model import BRIDGE, Call, Caller, CallHandler
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.downstream.client import client_behind
from mcpbridge.engine.leases import Lease, until_closed
from mcpbridge.pipeline.permissions.policy import Audience
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode_notification
from mcpbridge.protocol.meta import TRANSFORM, WHOLE
from mcpbridge.storage.call_log.format import CallRecord
from mcpbridge.storage.store import Store
from mcpbridge.tools.builtin.builtin import Builtin
from mcpbridge.tools.builtin.meta.call_tool import CallTool
from mcpbridge.tools.builtin.meta.describe_tools import DescribeTools
from mcpbridge.tools.builtin.meta.find_tools import FindTools
from mcpbridge.upstream.pool import Pool

if TYPE_CHECKING:  # loaded when they are needed
    from mcpbridge.catalog.search.llm_router import ModelRouter
    from mcpbridge.catalog.search.usage_feedback import Feedback
    from mcpbridge.catalog.signatures.python_stubs import Callee
    from mcpbridge.tools.builtin.code.run_code import RunCode


log = get_logger("mcpbridge.routing")


class SearchContext(Struct, frozen=True):
    """What `ToolSearch` is built with besides the settings; it outlives them."""

    catalog: Catalog
    pool: Pool
    store: Store
    settled: Callable[[], Awaitable[None]]
    """Waits a little while servers start."""
    plan: CallHandler
    """The way of calls that programs make."""
    saved: SavedBytes | None = None
    """Where the index is kept between runs; None: nowhere."""


class ToolSearch:
    """What each client is listed, the search, and the tools that find and call, by one reading of the settings."""

    def __init__(
        self,
        settings: Settings,
        context: SearchContext,
        lease: Lease,
        sources: Mapping[str, OfferSettings],
        *,
        previous: "ToolSearch | None" = None,
    ) -> None:
        """Touches nothing: no file, no process. `lease` holds what runs. `sources`: what is set of who offers tools.

        `previous`: the one whose place this takes.

        Raises:
            ConfigError: programs are switched on and cannot run here.
        """
        self._settings, self._plan = settings, context.plan
        self._catalog, self._settled = context.catalog, context.settled
        search, embedder = settings.search, settings.search.embedder
        self._searching = lease.hold(
            "search",
            embedder,
            lambda: Searching(embedder, context.catalog, context.pool, context.saved),
            run=Searching.running,
        )
        self.search = self._searching.search
        store = context.store
        self.feedback = (
            lease.hold("feedback", None, lambda: _feedback(store), run=_run_feedback) if search.feedback else None
        )
        """What calls tell of searches; None: nobody notes that."""
        self._router = lease.hold("router", settings.router, lambda: _Router(settings.router), run=until_closed)
        self.exposing = Exposing(
            settings.expose,
            settings.profiles,
            sources,
            context.catalog,
            map_of=self._map_of,
            signature=_call_line,
            will_search=self.search.warm,
            gone=previous.exposing.profiles if previous is not None else (),
        )
        """Who is listed what."""
        self._visible: dict[tuple[str, Audience, Scope | None], tuple[Snapshot, VisibleTools]] = {}
        self._texts: tuple[VisibleTools, Mapping[str, ToolText]] | None = None
        """What a model chose from last."""
        self._maps: dict[tuple[str, Scope | None], str] = {}
        found = _activate if settings.expose.activate else None
        own: list[Builtin] = [
            FindTools(
                self._settled_look, limit=search.limit, tokens=search.tokens, feedback=self.feedback, on_result=found
            ),
            DescribeTools(self._settled_look, has_programs=settings.code.enabled),
            CallTool(self._call_tool),
        ]
        if settings.code.enabled:
            own.append(lease.hold("programs", self, self._run_code, run=until_closed))
        self.builtins: Mapping[str, Builtin] = {str(builtin.definition["name"]): builtin for builtin in own}

    def call_ended(self, record: CallRecord) -> None:
        """A call has ended."""
        if self.feedback is not None and record.method == "tools/call" and record.outcome == "ok":
            self.feedback.called(record.principal, record.tool)

    def catalog_changed(self, snapshot: Snapshot, kinds: frozenset[Kind]) -> None:
        """The catalog lists other things of these kinds."""
        self._visible.clear()
        self._texts = None
        if "tools" in kinds:
            self.search.refresh()

    # -- what clients see

    async def _settled_look(self, call: Call) -> VisibleTools:
        await self._settled()
        self._catalog.flush()
        return self.look(call)

    def look(self, call: Call) -> VisibleTools:
        """What who makes this call may find."""
        return self.visible_to(call.caller)

    def visible_to(self, caller: Caller) -> VisibleTools:
        """What this client may find: what the policy and its profile let it."""
        audience = self._catalog.audience(caller.name, caller.principal, caller.identity)
        scope = self.exposing.of_client(caller).scope
        snapshot = self._catalog.view(caller.view, audience)
        key = caller.view, audience, scope
        known = self._visible.get(key)
        if known is None or known[0] is not snapshot:
            if len(self._visible) >= _MOST_KNOWN:
                self._visible.clear()
            known = self._visible[key] = snapshot, self._visible_in(snapshot, scope)
        return known[1]

    def says(self, server: str) -> ServerText:
        """What a server says of itself, as its tools are found by it."""
        return self._searching.says(server)

    def signature_of(self, ref: ToolRef) -> str:
        """How this tool is called, in a line."""
        return _call_line(ref.wire, self.search.text_of(ref).schema or {})

    async def choose(self, query: str, client: Caller, exposure: Exposure, elicitor: Elicitor) -> Sequence[str] | None:
        """Ids of the tools for a request, of those that this client may find; None: all of them."""
        visible, settings = self.visible_to(client), self._settings.router
        snapshot = self._catalog.view(
            client.view, self._catalog.audience(client.name, client.principal, client.identity)
        )
        from mcpbridge.catalog.search.find import find

        try:
            ranker = await self.search.ranker(query)
            if settings.provider == "none":
                found = find(query, settings.max_tools, visible, ranker)
                return [one.id for one in found.abilities[: settings.max_tools]] if found.fits else None
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the search, a list is answered
            log.warning("the model cannot choose tools", error=str(error))
            return None
        if self._texts is None or self._texts[0] is not visible:
            self._texts = visible, {wire: self.search.text_of(ref) for wire, ref in self._refs(visible).items()}
        texts = self._texts[1]
        # What the model of one client chose is for that client alone.
        whose = client.session.id if settings.provider == "client" else ""
        key = f"{snapshot.digest}/{exposure.scope.name if exposure.scope is not None else ''}/{whose}"
        choice = await self._router.model.choose(query, texts, ranker, key=key, elicitor=elicitor)
        return None if choice.by == "all" else [texts[name].id for name in choice.names]

    def _visible_in(self, snapshot: Snapshot, scope: Scope | None) -> VisibleTools:
        tools = {
            wire: ref
            for wire, ref in snapshot.tools.items()
            if ref.server != BRIDGE and (scope is None or scope.has(ref))
        }
        return VisibleTools(tools, self.search.ranker, lambda: self._map_of(snapshot, scope))

    def _refs(self, visible: VisibleTools) -> dict[str, ToolRef]:
        return {wire: ref for wire, ref in visible.tools.items() if isinstance(ref, ToolRef) and not ref.app_only}

    def _map_of(self, snapshot: Snapshot, scope: Scope | None) -> str:
        """What there is, in a few words; made once for each catalog that somebody sees."""
        known = self._maps.get((snapshot.digest, scope))
        if known is None:
            from mcpbridge.catalog.listing.catalog_summary import catalog_map

            refs = [ref for ref in snapshot.tools.values() if ref.server != BRIDGE and not ref.app_only]
            tools = [(ref.server, ref.name) for ref in refs if scope is None or scope.has(ref)]
            if len(self._maps) >= _MOST_KNOWN:
                self._maps.clear()
            says = self._searching.says
            known = catalog_map(tools, {server: says(server) for server in {server for server, _ in tools}})
            self._maps[snapshot.digest, scope] = known
        return known

    # -- programs

    def _run_code(self) -> "RunCode":
        from mcpbridge.sandbox.python.program import why_none
        from mcpbridge.tools.builtin.code.run_code import RunCode

        if reason := why_none():
            raise ConfigError(reason, key="code.enabled")
        return RunCode(self._settings.code, find=self._callee, call_tool=self._call_within)

    def _callee(self, call: Call, name: str) -> "Callee | None":
        from mcpbridge.catalog.signatures.python_stubs import Callee

        visible = self.look(call)
        tool = visible.tools.get(name)
        if tool is None or tool.app_only:
            try:
                tool = visible.find(visible.wires_by_function.get(name, name))
            except UnknownName:
                return None
        if not isinstance(tool, ToolRef):
            return None
        text = self.search.text_of(tool)
        return Callee(tool.wire, text.description, text.schema, _output_of(tool))

    async def _call_within(self, outer: Call, wire: str, arguments: Raw) -> Body:
        """A call that a program makes: its result comes whole.

        Raises:
            UnknownName: the tool is not there any more.
        """
        ref = self.look(outer).tools.get(wire)
        if not isinstance(ref, ToolRef):
            raise UnknownName("tool", wire)
        return await self._call_inside(outer, ref, arguments, _meta_within(outer, is_whole=True), "run_code")

    async def _call_tool(self, outer: Call, name: str, arguments: Raw) -> Body:
        """A call that `call_tool` makes, where that has to obey rules itself.

        Raises:
            UnknownName: there is no tool of this name that can be found.
        """
        ref = self.look(outer).find(name)
        if not isinstance(ref, ToolRef):
            raise UnknownName("tool", name)
        try:
            return await self._call_inside(outer, ref, arguments, _meta_within(outer), "call_tool")
        except ArgumentsRefused as refused:
            refused.tell_signature(self.signature_of(ref))
            raise

    async def _call_inside(self, outer: Call, ref: ToolRef, arguments: Raw, meta: Body, through: str) -> Body:
        """A call within another, as its client would make it."""
        params = Body()
        params.put("name", ref.name)
        params.put("arguments", arguments)
        call = Call("tools/call", ref.server, ref.name, params, meta, update=outer.update)
        call.tool, call.caller, call.around = ref, outer.caller, outer.around
        call.client, call.within, call.trace = outer.client, outer, outer.trace
        call.log_level, call.wants_progress = outer.log_level, outer.wants_progress
        call.needs_task = ref.task_support == "required"
        call.note("through", through)
        try:
            return await self._plan(call)
        except asyncio.CancelledError:
            call.cancelled()
            raise


def _meta_within(outer: Call, *, is_whole: bool = False) -> Body:
    """What a call within another says of itself: run, context and turn of the outer one."""
    meta = Body()
    for name, value in (outer.meta.fields if outer.meta is not None else {}).items():
        if name not in ("progressToken", TRANSFORM):
            meta.put(name, value)
    if is_whole:
        meta.put(WHOLE, "whole")
    return meta


_MOST_KNOWN = 64
_MOST_ACTIVATED = 64
_LIST_CHANGED = encode_notification("notifications/tools/list_changed")


def _activate(call: Call, ids: Sequence[str]) -> None:
    """What a search of a legacy session has found is listed from now on. A modern list depends on no earlier call."""
    client = client_behind(call.caller)
    if client is not None and not client.modern and client.initialized:
        activated = tuple(dict.fromkeys([*ids, *client.activated]))[:_MOST_ACTIVATED]
        if set(activated) != set(client.activated):
            client.activated = activated
            client.push(_LIST_CHANGED)


def _feedback(store: Store) -> "Feedback":
    from mcpbridge.catalog.search.usage_feedback import Feedback

    return Feedback(store)


def _run_feedback(feedback: "Feedback") -> AbstractAsyncContextManager[None]:
    return feedback.running()


class _Router:
    """The model that chooses tools, loaded with the first request for it."""

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings

    @cached_property
    def model(self) -> "ModelRouter":
        from mcpbridge.catalog.search.llm_router import ModelRouter

        return ModelRouter(self._settings)

    async def close(self) -> None:
        if "model" in self.__dict__:
            await self.model.close()


def _call_line(name: str, schema: Mapping[str, Any]) -> str:
    from mcpbridge.catalog.signatures.signature import call_line

    return call_line(name, schema)


class _Output(msgspec.Struct):
    outputSchema: Any = None  # noqa: N815 - as in the protocol


_decode_output = msgspec.json.Decoder(_Output).decode


def _output_of(ref: ToolRef) -> "Mapping[str, Any] | None":
    try:
        schema = _decode_output(ref.definition).outputSchema
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return schema if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType] - JSON
