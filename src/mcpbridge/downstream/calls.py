"""Listing and calling: requests that the catalog answers, or that an upstream gets.

A name is resolved once, against the snapshot of that moment; what follows knows only the server and its own name.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

from msgspec import Raw

from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Kind, Snapshot
from mcpbridge.downstream.asking import LegacyAsker, Unasked
from mcpbridge.downstream.channel import Client, Notify
from mcpbridge.downstream.handling import Handler, Startup, text
from mcpbridge.downstream.levels import lower
from mcpbridge.downstream.links import publish_uris
from mcpbridge.downstream.pages import pages_first
from mcpbridge.downstream.parking import Parking
from mcpbridge.downstream.tasks import Tasks
from mcpbridge.downstream.updates import CallUpdates, own_log
from mcpbridge.errors import BadRequest, UnknownName, UpstreamAnswered, UpstreamGarbled
from mcpbridge.model import Call, Plan, ignore_update
from mcpbridge.pipeline.driving import needs_driving
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.wire.body import Body
from mcpbridge.wire.codes import HEADER_MISMATCH, INVALID_PARAMS, code_of
from mcpbridge.wire.envelope import complete_for_modern
from mcpbridge.wire.extensions import declared_up, extensions_of
from mcpbridge.wire.frame import Frame, encode
from mcpbridge.wire.log_levels import LEVELS
from mcpbridge.wire.peer import Update

__all__ = ["Calls"]

_Found = TypeVar("_Found")

_MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests whose answer may be a question (spec 2026-07-28, multi round-trip requests)."""

_NO_COMPLETION = b'{"completion":{"values":[],"total":0,"hasMore":false}}'


class Calls:
    """Handlers of the requests that concern tools, prompts and resources."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Pool,
        plan: Plan,
        server_info: bytes,
        startup: Startup,
        parking: Parking,
        tasks: Tasks,
        *,
        extensions: frozenset[str] = frozenset(),
    ) -> None:
        """`server_info`: the bridge's own, encoded. `extensions`: those that the configuration lets cross."""
        self._extensions, self._tasks = extensions, tasks
        self._catalog, self._pool, self._plan, self._parking = catalog, pool, plan, parking
        self._server_info, self._settled, self._more = server_info, startup.settled, startup.more
        self._clock = asyncio.get_running_loop().time

    @property
    def handlers(self) -> dict[str, Handler]:
        """By method; the same in both eras."""
        return {
            "tools/call": self.call_tool,
            "tools/list": self._list("tools"),
            "prompts/list": self._list("prompts"),
            "prompts/get": self.get_prompt,
            "resources/list": self._list("resources"),
            "resources/templates/list": self._list("templates"),
            "resources/read": self.read_resource,
            "completion/complete": self.complete,
        }

    def _list(self, kind: Kind) -> Handler:
        async def answer_list(client: Client, frame: Frame, _: Notify) -> bytes:
            if client.modern and client.profile:
                self._pool.expect(client.profile)
            await self._settled()
            params = _params(frame)
            cursor = text(params, "cursor") if bytes(params.get("cursor") or b"null") != b"null" else None
            return self._catalog.flush(client.view).page(kind, cursor, revision=client.version)

        return answer_list

    async def call_tool(self, client: Client, frame: Frame, notify: Notify) -> bytes | Raw:
        """`tools/call`: by wire name or alias."""
        params = _params(frame)
        name = text(params, "name")
        try:
            ref = self._catalog.view(client.view).tool(name)
        except UnknownName:
            ref = await self.find(client.view, name, lambda snapshot: snapshot.tool(name))
        if ref.name != name:
            params.put("name", ref.name)
        arguments = params.get("arguments")
        if arguments is not None and bytes(memoryview(arguments)[:1]) not in (b"{", b"n"):
            raise BadRequest(INVALID_PARAMS, f"The arguments of {name} must be a JSON object")
        if ref.is_marked and client.param_headers is not None:
            _check_param_headers(ref.published_modern, params, client.param_headers)
        target = ref.server, ref.name
        headers = _mirrored(ref.headers, params) if ref.headers else ()
        as_task = False, False
        if ref.task_support or "task" in params or "extensions" in client.capabilities:
            as_task = self._tasks.way_of(client, ref, params)
        result = await self._deliver(client, "tools/call", target, params, notify, headers=headers, as_task=as_task)
        return result.data

    async def get_prompt(self, client: Client, frame: Frame, notify: Notify) -> bytes | Raw:
        """`prompts/get`."""
        params = _params(frame)
        name = text(params, "name")
        ref = await self.find(client.view, name, lambda snapshot: snapshot.prompt(name))
        params.put("name", ref.name)
        return (await self._deliver(client, "prompts/get", (ref.server, ref.name), params, notify)).data

    async def read_resource(self, client: Client, frame: Frame, notify: Notify) -> bytes | Raw:
        """`resources/read`: listed ones, expansions of templates, and links out of results."""
        params = _params(frame)
        uri = text(params, "uri")
        target = await self.find(client.view, uri, lambda snapshot: snapshot.resource(uri))
        params.put("uri", target[1])
        try:
            return (await self._deliver(client, "resources/read", target, params, notify, cacheable=True)).data
        except UpstreamAnswered as error:
            error.asked = uri
            raise

    async def complete(self, client: Client, frame: Frame, notify: Notify) -> bytes | Raw:
        """`completion/complete`: by the owner of the prompt or template; nothing where it does not complete."""
        params = _params(frame)
        ref = params.inner("ref") or Body()
        kind = text(ref, "type")
        if kind == "ref/prompt":
            name = text(ref, "name")
            prompt = await self.find(client.view, name, lambda snapshot: snapshot.prompt(name))
            target = prompt.server, prompt.name
            ref.put("name", prompt.name)
        elif kind == "ref/resource":
            uri = text(ref, "uri")
            target = await self.find(client.view, uri, lambda snapshot: snapshot.template(uri))
            ref.put("uri", target[1])
        else:
            raise BadRequest(INVALID_PARAMS, f"Unknown kind of reference: {kind[:50]!r}")
        upstream = self._pool.upstreams.get(target[0])
        if upstream is not None and upstream.session is not None and not upstream.session.declares("completions"):
            nothing = Body(_NO_COMPLETION)
            return (complete_for_modern(nothing, self._server_info) if client.modern else nothing).data
        params.put("ref", ref)
        return (await self._deliver(client, "completion/complete", target, params, notify)).data

    async def find(self, view: str, name: str, look: Callable[[Snapshot], _Found]) -> _Found:
        """What `look` finds in a view; while servers are starting it may be a server's that has not listed yet.

        Raises:
            UpstreamUnavailable: by its prefix the name belongs to a server that is not to be had; says why.
            UnknownName: nobody has it.
            Overloaded: too many wait for the start already.
        """
        try:
            return look(self._catalog.view(view))
        except UnknownName:
            upstream = self._unlisted(view) if view else self._named_in(name)
        if upstream is not None:
            await upstream.ready()  # its own start alone is waited for
        if view or upstream is not None:
            return look(self._catalog.flush(view))
        while True:
            is_over = not await self._more()
            try:
                return look(self._catalog.flush())
            except UnknownName:
                if is_over:
                    raise

    def _named_in(self, name: str) -> Upstream | None:
        """The server whose prefix the name has, if it has not listed anything so far."""
        for server in self._pool.upstreams:
            if name.startswith((f"{server}__", f"{server}/", f"{server}.")) and (upstream := self._unlisted(server)):
                return upstream
        return None

    def _unlisted(self, server: str) -> Upstream | None:
        """This server, if it has not listed anything so far."""
        upstream = self._pool.upstreams.get(server)
        return upstream if upstream is not None and not upstream.lists else None

    async def _deliver(
        self,
        client: Client,
        method: str,
        target: tuple[str, str],
        params: Body,
        notify: Notify,
        *,
        cacheable: bool = False,
        headers: tuple[tuple[str, str], ...] = (),
        as_task: tuple[bool, bool] = (False, False),
    ) -> Body:
        """Send the call on its way; the result comes back as this client must get it. `as_task`: see `Tasks.way_of`."""
        server, name = target
        meta = params.inner("_meta")
        token = meta.get("progressToken") if meta is not None else None
        upstream = self._pool.upstreams.get(server)
        update: Update = partial(own_log, notify, server)
        if token is not None or client.log_level or client.modern:
            update = self._updates(client, upstream, notify, server, token)
        call = Call(method, server, name, params, meta, token is not None, client.log_level, update, headers)
        call.needs_task, call.takes_task = as_task
        is_of_answers = cacheable and ("requestState" in params or "inputResponses" in params)
        try:
            try:
                result = await self._run(client, call, notify)
            except UpstreamAnswered as error:
                is_unheard = code_of(error.error) == HEADER_MISMATCH and upstream is not None and upstream.modern
                if not is_unheard or method != "tools/call":
                    raise
                call.headers = await self._headers_anew(call)
                result = await self._run(client, call, notify)
        except UpstreamAnswered as error:
            raise pages_first(error, client) from error
        if call.takes_task:
            result = self._tasks.created(client, call, result, notify)
        if isinstance(update, CallUpdates):
            update.flush()
        snapshot = self._catalog.view(client.view)
        if snapshot.may_hold_uris(server, result.data):
            publish_uris(method, result, lambda uri: snapshot.published_uri(server, uri))
        if client.modern:
            if upstream is not None and upstream.modern:
                _require_kind(server, result, _KINDS)
            is_final = not cacheable or not needs_driving(result)
            return complete_for_modern(
                result, self._server_info, cacheable=cacheable and is_final, is_of_answers=is_of_answers
            )
        if upstream is not None and client.version < upstream.version:
            if upstream.modern:
                _require_kind(server, result, _FINAL)
            lower(method, result, spoken=upstream.version, understood=client.version)
        return result

    def _updates(
        self, client: Client, upstream: Upstream | None, notify: Notify, server: str, token: Raw | None
    ) -> Update:
        """What the client hears of the call meanwhile, where it said what it wants."""
        level = client.log_level
        if not client.modern:
            level = level or LEVELS[0]  # none was set: what the server sends of this call, as without a bridge
        elif level and upstream is not None and not upstream.modern:
            upstream.wanted.want_log_level_once(level)
        return CallUpdates(notify, server, token, level, self._clock) if level or token is not None else ignore_update

    def _run(self, client: Client, call: Call, notify: Notify) -> Awaitable[Body]:
        """The call on its way, with whoever can be asked about it."""
        if "extensions" in client.capabilities:
            call.extensions = encode(declared_up(extensions_of(client.capabilities), self._extensions, tasks=True))
        if client.modern:
            if call.method in _MAY_ASK and (client.profile or "requestState" in call.params):
                return self._parking.deliver(client, call)
            if self._keeps_apart(call.upstream):
                call.client = Unasked(client)
        elif client.asked is not None and (client.profile or self._keeps_apart(call.upstream)):
            call.client = LegacyAsker(client, client.asked, notify)
        return self._plan(call)

    def _keeps_apart(self, server: str) -> bool:
        """Which client a call is of matters to this server, also if it can ask nothing."""
        upstream = self._pool.upstreams.get(server)
        return upstream is not None and not upstream.is_shared

    async def _headers_anew(self, call: Call) -> tuple[tuple[str, str], ...]:
        """The `Mcp-Param-*` headers of a call by what the server lists now: it refused them unseen (spec 2.4)."""
        upstream = self._pool.upstreams.get(call.upstream)
        if upstream is not None:
            await upstream.list_again("tools")
        tools = self._catalog.flush().tools.values()
        ref = next((ref for ref in tools if (ref.server, ref.name) == (call.upstream, call.target)), None)
        return _mirrored(ref.headers, call.params) if ref is not None else ()


_FINAL = frozenset({b'"complete"'})
"""The only kind of result that a legacy client knows."""
_KINDS = _FINAL | {b'"input_required"', b'"task"'}
"""What a modern client can take: the kinds of the revision, and of the extension that is relayed."""


def _require_kind(server: str, result: Body, kinds: frozenset[bytes]) -> None:
    """A result of another kind must not reach the client: it could not tell what to do with it (spec 2.11)."""
    if b'"resultType"' not in bytes(result.data):
        return
    kind = bytes(result.get("resultType") or b'"complete"')
    if kind not in kinds:
        shown = kind[:40].decode("utf-8", "replace")
        raise UpstreamGarbled(server, f"its result is of the kind {shown}, which was not declared to it")


def _mirrored(marks: Mapping[tuple[str, ...], str], params: Body) -> tuple[tuple[str, str], ...]:
    """The arguments that the tool's schema marks with `x-mcp-header`, as `Mcp-Param-*` headers."""
    from mcpbridge.wire.sdk import mcp_param_headers  # rare, and it loads a part of the SDK

    arguments = params.inner("arguments")
    return tuple(mcp_param_headers(marks, arguments.value()).items()) if arguments is not None else ()


def _check_param_headers(definition: bytes, params: Body, headers: Mapping[str, str]) -> None:
    """Refuse a call whose `Mcp-Param-*` headers are not what its arguments say (spec 2026-07-28, transports)."""
    from mcpbridge.wire.sdk import validate_mcp_param_headers  # as above

    arguments = params.inner("arguments") or Body()
    schema = Body(definition).inner("inputSchema") or Body()
    broken = validate_mcp_param_headers(schema.value(), arguments.value(), headers)
    if broken is not None:
        code, message, data = broken
        raise BadRequest(code, message, data)


def _params(frame: Frame) -> Body:
    return Body(frame.params) if bytes(memoryview(frame.params)[:1]) else Body()
