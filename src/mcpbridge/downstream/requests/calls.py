"""The `Mcp-Param-*` headers of a call: arguments that its tool marks with `x-mcp-header` (MCP 2026-07-28, transports).

The SDK knows their rules; the part of it that does is loaded only where a tool has such marks.

Listing and calling: requests that the catalog answers, or that an upstream gets by `delivery`.

A name is resolved once, against the snapshot of that moment; what follows knows only the server and its own name.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from msgspec import Raw

from mcpbridge.base.errors import ArgumentsRefused, BadRequest, UnknownName, UpstreamAnswered
from mcpbridge.catalog.listing.profiles import Scope
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.core.model import BRIDGE
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.handler import Finding, Handler, text
from mcpbridge.downstream.requests.delivery import Delivery
from mcpbridge.downstream.requests.lists import Listing
from mcpbridge.downstream.requests.result_resources import RESULT_URIS, ResultResources
from mcpbridge.downstream.tasks.tasks import Tasks
from mcpbridge.pipeline.stages.validate_arguments import told_of
from mcpbridge.pipeline.validation.coercion import UNWRAPPED, object_within
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import INVALID_PARAMS, Frame
from mcpbridge.protocol.meta import TRANSFORM, complete_for_modern
from mcpbridge.sandbox.javascript.scripts import transform_suffix
from mcpbridge.tools.builtin.meta.call_tool import inner_call
from mcpbridge.upstream.pool import Pool


def check_param_headers(definition: bytes, params: Body, headers: Mapping[str, str]) -> None:
    """Compare what a client sent with its arguments, by the tool's definition.

    Raises:
        BadRequest: they say different things.
    """
    from mcpbridge.protocol.sdk import validate_mcp_param_headers

    arguments = params.inner("arguments") or Body()
    schema = Body(definition).inner("inputSchema") or Body()
    broken = validate_mcp_param_headers(schema.value(), arguments.value(), headers)
    if broken is not None:
        code, message, data = broken
        raise BadRequest(code, message, data)


_Found = TypeVar("_Found")

_NO_COMPLETION = b'{"completion":{"values":[],"total":0,"hasMore":false}}'


class Calls:
    """Handlers of the requests that concern tools, prompts and resources."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Pool,
        finding: Finding,
        delivery: Delivery,
        tasks: Tasks,
        server_info: bytes,
        results: ResultResources,
        listing: Listing,
    ) -> None:
        """`server_info`: the bridge's own, encoded. `results`: those that are kept. `listing`: answers lists."""
        self._catalog, self._pool = catalog, pool
        self._listing, self._scope_of = listing, listing.scope_of if listing.exposing.profiles else None
        self._finding, self._deliver = finding, delivery.deliver
        self._results = results
        self._tasks, self._server_info = tasks, server_info

    @property
    def handlers(self) -> dict[str, Handler]:
        """By method; the same in both eras."""
        return {
            "tools/call": self.call_tool,
            **self._listing.handlers,
            "prompts/get": self.get_prompt,
            "resources/read": self.read_resource,
            "completion/complete": self.complete,
        }

    def call_tool(self, client: Client, frame: Frame, notify: Notify) -> Awaitable[bytes | Raw]:
        """`tools/call`: by wire name or alias. No coroutine of its own: every call would pay for one more."""
        params = _params(frame)
        name = text(params, "name")
        try:
            ref = self._catalog.view(client.view).tool(name)
        except UnknownName:
            return self._find_and_call(client, name, params, notify)
        return self._call(client, ref, name, params, notify)

    async def _find_and_call(self, client: Client, name: str, params: Body, notify: Notify) -> bytes | Raw:
        name = self._listing.own_name(client, name)
        if (suffixed := transform_suffix(name)) is not None:
            name = suffixed[0]
            params.put("name", name)
            meta = params.inner("_meta") or Body()
            meta.put(TRANSFORM, suffixed[1])
            params.put("_meta", meta)
        ref = await self._find_tool(client, name)
        return await self._call(client, ref, name, params, notify)

    def _call(
        self, client: Client, ref: ToolRef, name: str, params: Body, notify: Notify, *, is_direct: bool = True
    ) -> Awaitable[bytes | Raw]:
        """`is_direct`: it came by itself, so headers of the request repeat what the tool says must stand in them."""
        if ref.server == BRIDGE and ref.name == "call_tool" and self._listing.is_open(ref):
            return self._call_inside(client, ref, params, notify)
        if self._scope_of is not None:
            self._require(client, "tool", name, lambda scope: scope.has(ref))
        if ref.name != name:
            params.put("name", ref.name)
        else:
            params.say_once()  # the server must not find another name, or other arguments, than everybody here
        arguments = params.get("arguments")
        unwrapped = False
        if arguments is not None and bytes(memoryview(arguments)[:1]) not in (b"{", b"n"):
            inside = object_within(arguments)
            if inside is None:
                raise BadRequest(INVALID_PARAMS, f"The arguments of {name} must be a JSON object")
            params.put("arguments", inside)  # here, so that all stages may count on an object
            unwrapped = True
        if ref.is_marked and is_direct and client.param_headers is not None:
            check_param_headers(ref.published_modern, params, client.param_headers)
        as_task = False, False
        if ref.task_support or "task" in params or "extensions" in client.capabilities:
            as_task = self._tasks.way_of(client, ref, params)
        target = ref.server, ref.name
        answer = self._deliver(client, "tools/call", target, params, notify, tool=ref, as_task=as_task)
        return _unwrapped(answer) if unwrapped else answer

    async def _call_inside(self, client: Client, meta_tool: ToolRef, params: Body, notify: Notify) -> bytes | Raw:
        """The call that stands in the arguments of `call_tool`, as if it had come by itself."""
        name, arguments = inner_call(params)
        name = self._listing.own_name(client, name)
        params.put("name", name)
        params.put("arguments", arguments)
        ref = await self._find_tool(client, name)
        if ref.id == meta_tool.id:
            raise BadRequest(INVALID_PARAMS, "call_tool calls other tools, not itself")
        try:
            if bytes(arguments)[:1] != b"{" and object_within(arguments) is None:
                raise ArgumentsRefused(f"The arguments of {name} must be a JSON object")
            return await self._call(client, ref, name, params, notify, is_direct=False)
        except ArgumentsRefused as refused:
            refused.tell_signature(self._listing.signature_of(ref))
            raise

    async def _find_tool(self, client: Client, name: str) -> ToolRef:
        """The tool of this name; where there is none, tools that this client sees are suggested."""
        if self._listing.extra.are_any and (extra := await self._listing.extra.find(client, name)):
            return extra
        return await self._find(client, name, lambda snapshot: snapshot.tool(name), suggests=True)

    async def _find(
        self, client: Client, name: str, look: Callable[[Snapshot], _Found], *, suggests: bool = False
    ) -> _Found:
        """As `Finding.find`; who is kept to a profile is told no names that may be others'."""
        try:
            return await self._finding.find(client.view, name, look, seen_by=client if suggests else None)
        except UnknownName as error:
            if self._scope_of is None or self._scope_of(client) is None:
                raise
            raise UnknownName(error.kind, error.name) from None

    def _require(self, client: Client, kind: str, name: str, belongs: Callable[[Scope], bool]) -> None:
        """Raises UnknownName where the profile of this client has no such thing."""
        scope = self._scope_of(client) if self._scope_of is not None else None
        if scope is not None and not belongs(scope):
            raise UnknownName(kind, name)

    async def get_prompt(self, client: Client, frame: Frame, notify: Notify) -> bytes | Raw:
        """`prompts/get`."""
        params = _params(frame)
        name = text(params, "name")
        ref = await self._find(client, name, lambda snapshot: snapshot.prompt(name))
        self._require(client, "prompt", name, lambda scope: scope.has_server(ref.server))
        params.put("name", ref.name)
        return await self._deliver(client, "prompts/get", (ref.server, ref.name), params, notify)

    async def read_resource(self, client: Client, frame: Frame, notify: Notify) -> bytes | Raw:
        """`resources/read`: listed ones, expansions of templates, and links out of results."""
        params = _params(frame)
        uri = text(params, "uri")
        if uri.startswith(RESULT_URIS):
            try:
                return await self._results.read(client, uri)
            except UnknownName:  # a server may be a bridge itself, with links of its own
                owner = self._catalog.view(client.view).seen_in(uri)
                if not owner:
                    raise
            target = owner, uri
        else:
            target = await self._find(client, uri, lambda snapshot: snapshot.resource(uri))
            self._require(client, "resource", uri, lambda scope: scope.has_server(target[0]))
        params.put("uri", target[1])
        try:
            return await self._deliver(client, "resources/read", target, params, notify, cacheable=True)
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
            prompt = await self._find(client, name, lambda snapshot: snapshot.prompt(name))
            self._require(client, "prompt", name, lambda scope: scope.has_server(prompt.server))
            target = prompt.server, prompt.name
            ref.put("name", prompt.name)
        elif kind == "ref/resource":
            uri = text(ref, "uri")
            target = await self._find(client, uri, lambda snapshot: snapshot.template(uri))
            self._require(client, "resource template", uri, lambda scope: scope.has_server(target[0]))
            ref.put("uri", target[1])
        else:
            raise BadRequest(INVALID_PARAMS, f"Unknown kind of reference: {kind[:50]!r}")
        upstream = self._pool.upstreams.get(target[0])
        if upstream is not None and upstream.lacks("completions"):
            nothing = Body(_NO_COMPLETION)
            return (complete_for_modern(nothing, self._server_info) if client.modern else nothing).data
        params.put("ref", ref)
        return await self._deliver(client, "completion/complete", target, params, notify)


async def _unwrapped(answer: Awaitable[bytes | Raw]) -> bytes | Raw:
    """The answer to a call whose arguments came as text, telling of that."""
    return told_of(Body(await answer), [UNWRAPPED.told()]).data


def _params(frame: Frame) -> Body:
    return Body(frame.params) if frame.params else Body()
