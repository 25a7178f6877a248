"""Handlers of calls: tools, prompts, resources and completions.

`catalog/resolve.py` decides once which tool a `tools/call` means, against the snapshot of that moment; what follows
knows only the server and its own name. If nobody has the name, this file waits for tools of the session and for
servers that still start. It also keeps a client to its profile. `delivery.py` takes the call from here.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

from msgspec import Raw, ValidationError

from mcpbridge.base.errors import ArgumentsRefused, BadRequest, BridgeError, NotPermitted, UnknownName, UpstreamAnswered
from mcpbridge.base.hidden_json import without_hidden_in
from mcpbridge.catalog.listing.profiles import Scope
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.resolve import ResolvedCall, resolve
from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.catalog.upstream_filter import HELD, UNAPPROVED
from mcpbridge.core.model import BRIDGE
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.handler import Handler, NameLookup, decode_text, text
from mcpbridge.downstream.requests.delivery import Delivery
from mcpbridge.downstream.requests.lists import Listing
from mcpbridge.downstream.requests.result_resources import RESULT_URIS, ResultResources
from mcpbridge.downstream.tasks.tasks import Tasks
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INVALID_PARAMS
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.meta import TRANSFORM, complete_for_modern
from mcpbridge.protocol.payload import Payload
from mcpbridge.upstream.pool import Pool

_FoundT = TypeVar("_FoundT")

_NO_COMPLETION = b'{"completion":{"values":[],"total":0,"hasMore":false}}'


def ignore_unplanned(client: Client, name: str, refused: BridgeError) -> None:
    """Nobody counts."""


class Calls:
    """Handlers of the requests that concern tools, prompts and resources."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Pool,
        finding: NameLookup,
        delivery: Delivery,
        tasks: Tasks,
        server_info: bytes,
        results: ResultResources,
        listing: Listing,
        on_unplanned: Callable[[Client, str, BridgeError], None] = ignore_unplanned,
    ) -> None:
        """`server_info`: the bridge's own, encoded. `results`: those that are kept. `listing`: answers lists.

        `on_unplanned` hears whose call named which tool, in the client's words, and why no plan has it: there is no
        such tool for this client, it is held, or its server is not there.
        """
        self._on_unplanned = on_unplanned
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

    def call_tool(self, client: Client, frame: Frame, notify: Notify) -> Awaitable[Payload]:
        """`tools/call`. No coroutine of its own: every call would pay for one more."""
        params = Body(frame.params) if frame.params else Body()
        try:
            name = decode_text(params.fields["name"])  # `text`, which every call would enter here
        except (KeyError, ValidationError):
            name = text(params, "name")  # it says what is wrong
        look = partial(
            resolve,
            name=name,
            params=params,
            catalog_name=partial(self._listing.own_name, client),
            may_unwrap=self._listing.is_open,
        )
        catalog = self._catalog
        try:
            if catalog.has_roles:
                resolved = look(catalog.seen_by(client))
            else:
                resolved = look(catalog.view(client.view) if client.view else catalog.snapshot)
        except UnknownName as unknown:
            return self._find_and_call(client, unknown.name, look, params, frame, notify)
        return self._call(client, resolved, params, frame, notify)

    async def _find_and_call(
        self, client: Client, name: str, look: Callable[..., ResolvedCall], params: Body, frame: Frame, notify: Notify
    ) -> Payload:
        """As `_call`, once tools of the session and servers that still start were asked for this name.

        Where there is no such tool, tools that this client sees are suggested.
        """
        extra = self._listing.extra
        try:
            ref = await extra.find(client, name) if extra.are_any else None
            if ref is not None and not self._listing.is_unknown(ref, client):
                resolved = look(self._catalog.seen_by(client), session_tools={name: ref})
            else:
                resolved = await self._find(client, name, look, suggests=True)
        except BridgeError as refused:
            self._on_unplanned(client, name, refused)
            raise
        return await self._call(client, resolved, params, frame, notify)

    def _call(
        self, client: Client, resolved: ResolvedCall, params: Body, frame: Frame, notify: Notify
    ) -> Awaitable[Payload]:
        """Bring `params` to what was resolved, and the call on its way."""
        ref = resolved.ref
        if self._scope_of is not None:
            self._require(client, "tool", resolved.name, lambda scope: scope.has(ref))
        if resolved.has_wrong_arguments:
            raise self._wrong_arguments(resolved)
        asked: bytes | Raw = b""
        if resolved.was_wrapped or resolved.was_text:
            asked = params.fields.get("arguments", b"")
            params.put("name", ref.name)
            params.put("arguments", resolved.arguments)  # here, so that all stages may count on an object
        elif ref.name != resolved.name or resolved.transform:
            params.put("name", ref.name)
        else:
            # The server must not find another name, or other arguments, than everybody here.
            params.remove_duplicate_members()
        if resolved.transform:
            meta = params.inner("_meta") or Body()
            meta.put(TRANSFORM, resolved.transform)
            params.put("_meta", meta)
        if ref.is_marked and client.param_headers is not None and not resolved.was_wrapped:
            check_param_headers(ref.published_modern, params, client.param_headers)
        as_task = False, False
        if ref.task_support or "task" in params.fields or "extensions" in client.declared_capabilities:
            as_task = self._tasks.task_mode(client, ref, params)
        target = ref.server, ref.name
        answer = self._deliver(
            client, frame, target, params, notify, tool=ref, as_task=as_task, was_text=resolved.was_text, asked=asked
        )
        return self._with_signature(answer, ref) if resolved.was_wrapped else answer

    def _wrong_arguments(self, resolved: ResolvedCall) -> Exception:
        text = f"The arguments of {resolved.name} must be a JSON object"
        if not resolved.was_wrapped:
            return BadRequest(INVALID_PARAMS, text)
        refused = ArgumentsRefused(text)
        refused.tell_signature(self._listing.signature_of(resolved.ref))
        return refused

    async def _with_signature(self, answer: Awaitable[Payload], ref: ToolRef) -> Payload:
        """The answer to a call in `call_tool`: whoever makes it may never have seen the tool's definition."""
        try:
            return await answer
        except ArgumentsRefused as refused:
            refused.tell_signature(self._listing.signature_of(ref))
            raise

    async def _find(
        self, client: Client, name: str, look: Callable[[Snapshot], _FoundT], *, suggests: bool = False
    ) -> _FoundT:
        """As `NameLookup.find`; who is kept to a profile is told no names that may be others'."""
        try:
            return await self._finding.find(client.view, name, look, caller=client, suggests=suggests)
        except UnknownName as error:
            self._refuse_held(client, name)
            if self._scope_of is None or self._scope_of(client) is None:
                raise
            raise UnknownName(error.kind, error.name) from None

    def _refuse_held(self, client: Client, name: str) -> None:
        """Raises NotPermitted for a tool that is held: who called it can see that it is there, and what accepts it."""
        if (self._scope_of is not None and self._scope_of(client) is not None) or self._catalog.is_kept(client):
            return
        for lost in self._catalog.view(client.view).dropped:
            is_held = lost.kind == "tools" and lost.reason.startswith((HELD, UNAPPROVED))
            if is_held and name in (lost.name, f"{lost.server}/{lost.name}", f"{lost.server}__{lost.name}"):
                raise NotPermitted(f"The tool {name} is {lost.reason}")

    def _require(self, client: Client, kind: str, name: str, belongs: Callable[[Scope], bool]) -> None:
        """Raises UnknownName where the profile of this client has no such thing."""
        scope = self._scope_of(client) if self._scope_of is not None else None
        if scope is not None and not belongs(scope):
            unknown = UnknownName(kind, name)
            if kind == "tool":
                self._on_unplanned(client, name, unknown)
            raise unknown

    async def get_prompt(self, client: Client, frame: Frame, notify: Notify) -> Payload:
        """`prompts/get`."""
        params = _params(frame)
        name = text(params, "name")
        ref = await self._find(client, name, lambda snapshot: snapshot.prompt(name))
        self._require(client, "prompt", name, lambda scope: scope.has_server(ref.server))
        params.put("name", ref.name)
        answer = await self._deliver(client, frame, (ref.server, ref.name), params, notify)
        shown = bytes(answer)
        cleaned = without_hidden_in(shown)
        return answer if cleaned is shown else cleaned

    async def read_resource(self, client: Client, frame: Frame, notify: Notify) -> Payload:
        """`resources/read`: listed ones, expansions of templates, and links out of results."""
        params = _params(frame)
        uri = text(params, "uri")
        if uri.startswith(RESULT_URIS):
            owner = self._catalog.view(client.view).seen_in(uri)  # a server may be a bridge itself, with its own
            is_others = bool(owner) and self._catalog.sees_resource(client, owner, uri)
            if not is_others or await self._results.has(client, uri):
                owner = BRIDGE
            target = owner, uri
        else:
            target = await self._find(client, uri, lambda snapshot: snapshot.resource(uri))
            self._require(client, "resource", uri, lambda scope: scope.has_server(target[0]))
        params.put("uri", target[1])
        try:
            return await self._deliver(client, frame, target, params, notify, cacheable=True)
        except UpstreamAnswered as error:
            error.asked = uri
            raise

    async def complete(self, client: Client, frame: Frame, notify: Notify) -> Payload:
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
        return await self._deliver(client, frame, target, params, notify)


def check_param_headers(definition: bytes, params: Body, headers: Mapping[str, str]) -> None:
    """Compare the `Mcp-Param-*` headers of a call with its arguments, by the marks (`x-mcp-header`) of its tool.

    MCP 2026-07-28, Streamable HTTP. The SDK knows the rules; the part of it that does is loaded only for such tools.

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


def _params(frame: Frame) -> Body:
    return Body(frame.params) if frame.params else Body()
