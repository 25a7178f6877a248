"""One call of a client: through the plan with whoever may be asked about it, and its result in this client's form.

Everything that depends on who calls is decided here: who can be asked, what the client hears meanwhile, what an older
or newer revision needs changed. So the layers below get a `Call` and nothing else.
"""

import asyncio
from collections.abc import Awaitable
from functools import partial

from msgspec import Raw

from mcpbridge.base.errors import UpstreamAnswered, UpstreamGarbled
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.core.context import NOWHERE, BridgeContext
from mcpbridge.core.model import CURRENT_CALL, Call, CallHandler, ignore_update
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.elicitation.ask import LegacyElicitor, NoElicitor
from mcpbridge.downstream.elicitation.parked_calls import Parking
from mcpbridge.downstream.express_lane import ExpressCall
from mcpbridge.downstream.progress import CallUpdates, own_log
from mcpbridge.downstream.requests.timeouts import CallTimeouts
from mcpbridge.downstream.revisions.downgrade import lower, pages_first
from mcpbridge.downstream.revisions.result_links import publish_uris
from mcpbridge.downstream.tasks.tasks import Tasks
from mcpbridge.pipeline.deliver import mirrored
from mcpbridge.pipeline.input_required import needs_driving
from mcpbridge.pipeline.stages.validate_arguments import mark_coerced
from mcpbridge.pipeline.validation.coercion import UNWRAPPED
from mcpbridge.protocol.body import LARGE, Body
from mcpbridge.protocol.error_codes import HEADER_MISMATCH, code_of
from mcpbridge.protocol.extensions import declared_to_servers, extensions_of
from mcpbridge.protocol.jsonrpc import Frame, encode
from mcpbridge.protocol.log_levels import LEVELS
from mcpbridge.protocol.meta import complete_for_modern
from mcpbridge.protocol.payload import Payload
from mcpbridge.protocol.peer import Update
from mcpbridge.upstream.pool import Pool

_MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests whose answer may be a question (MCP 2026-07-28, multi round-trip requests)."""


class Delivery:
    """Takes calls of clients to their servers and back."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Pool,
        plan: CallHandler,
        parking: Parking,
        tasks: Tasks,
        server_info: bytes,
        *,
        extensions: frozenset[str] = frozenset(),
        timeouts: CallTimeouts,
        around: BridgeContext = NOWHERE,
    ) -> None:
        """`server_info`: the bridge's own, encoded. `extensions`: those that the configuration lets cross.

        `timeouts`: is notified of each call of a tool. `around`: what is the same for all calls.
        """
        self._catalog, self._pool, self._plan, self._parking, self._tasks = catalog, pool, plan, parking, tasks
        self._server_info, self._extensions, self._around = server_info, extensions, around
        self._loop = asyncio.get_running_loop()
        self._timeouts, self._waited_for = timeouts, timeouts.calls

    async def deliver(
        self,
        client: Client,
        frame: Frame,
        target: tuple[str, str],
        params: Body,
        notify: Notify,
        *,
        cacheable: bool = False,
        tool: ToolRef | None = None,
        as_task: tuple[bool, bool] = (False, False),
        was_text: bool = False,
        asked: bytes | Raw = b"",
        sent: ExpressCall | None = None,
    ) -> Payload:
        """Send the call of a request on its way; the result comes back as this client must get it.

        `tool`: what is called, if it is one. `as_task`: see `Tasks.task_mode`. `was_text`, `asked`: see `Call`.
        `sent`: the call itself, which continues from the express lane.
        """
        server, name = target
        method = frame.method
        meta = params.inner("_meta") if "_meta" in params.fields else None
        token = meta.get("progressToken") if meta is not None else None
        upstream = self._pool.upstreams.get(server)
        update: Update = partial(own_log, notify, server, self._around.redact)
        if token is not None or client.log_level or client.modern:
            update = self._updates(client, notify, server, token)
        if client.modern and client.log_level and upstream is not None and not upstream.modern:
            await self._bring_to_level(server, client.log_level)
        if sent is not None:
            call, update = sent.call, sent.call.update
        else:
            call = Call(method, server, name, params, meta, token is not None, client.log_level, update)
            caller = client if client.identity is None else client.caller
            call.tool, call.caller, call.around = tool, caller, self._around
            outer = CURRENT_CALL.get()
            if outer is not None and outer.around is self._around:
                call.within = outer
            call.needs_task, call.takes_task = as_task
            call.was_text, call.asked, call.asked_as = was_text, asked, frame.id
        if self._around.pauses.resuming.all and meta is not None:
            from mcpbridge.tools.human_in_the_loop.paused_calls import go_on

            go_on(call)
        is_of_answers = cacheable and ("requestState" in params or "inputResponses" in params)
        task = asyncio.current_task(self._loop) if tool is not None else None
        if task is not None and self._waited_for.setdefault(task, call) is not call:
            task = None  # a hook of the call that this task answers makes it: its client can give up that one alone
        try:
            try:
                result = await (self._run(client, call, notify) if sent is None else sent.plan.chain(call))
            except UpstreamAnswered as error:
                is_unheard = code_of(error.error) == HEADER_MISMATCH and upstream is not None and upstream.modern
                if not is_unheard or method != "tools/call":
                    raise
                call.headers = await self._headers_anew(call)
                call.continues = True
                result = await self._run(client, call, notify)
        except UpstreamAnswered as error:
            raise pages_first(error, client) from error
        except asyncio.CancelledError:
            call.cancelled()
            raise
        finally:
            if task is not None:
                del self._waited_for[task]
        if task is not None and self._timeouts.given_up:
            await self._timeouts.finished(task, client, result, notify)
        if call.takes_task:
            result = self._tasks.created(client, call, result, notify)
        if isinstance(update, CallUpdates):
            update.flush()
        catalog = self._catalog
        snapshot = catalog.view(client.view) if client.view else catalog.snapshot
        if server in snapshot.uris.searched and snapshot.uris.may_hold_uris(server, result):
            publish_uris(method, result, lambda uri: snapshot.published_uri(server, uri))
        if client.modern:
            if upstream is not None and upstream.modern:
                _require_kind(server, result, _KINDS)
            is_final = not cacheable or not needs_driving(result)
            result = complete_for_modern(
                result, self._server_info, cacheable=cacheable and is_final, is_of_answers=is_of_answers
            )
        elif upstream is not None and client.version < upstream.version:
            if upstream.modern:
                _require_kind(server, result, _FINAL)
            lower(method, result, spoken=upstream.version, understood=client.version)
        if call.was_text:
            result = mark_coerced(result, [UNWRAPPED.to_json()])
        return result.data if result.words is None else result.payload()

    def _updates(self, client: Client, notify: Notify, server: str, token: Raw | None) -> Update:
        """What the client hears of the call meanwhile, where it said what it wants."""
        level = client.log_level
        if not client.modern:
            level = level or LEVELS[0]  # none was set: what the server sends of this call, as without a bridge
        if not level and token is None:
            return ignore_update
        return CallUpdates(notify, server, token, level, self._loop.time, self._around.redact)

    async def _bring_to_level(self, server: str, level: str) -> None:
        """The level that one request wants, where sessions have one: it is told before the call goes out."""
        instances = [upstream for upstream in self._pool.everyone() if upstream.name == server]
        for upstream in instances:
            upstream.wanted.want_log_level_once(level)
        for upstream in instances:
            if upstream.session is not None:
                await upstream.wanted.level_in_force()

    def _run(self, client: Client, call: Call, notify: Notify) -> Awaitable[Body]:
        """The call on its way, with whoever can be asked about it."""
        if "extensions" in client.declared_capabilities:
            call.extensions = encode(
                declared_to_servers(extensions_of(client.declared_capabilities), self._extensions, tasks=True)
            )
        if client.modern:
            if call.method in _MAY_ASK and (client.capabilities or "requestState" in call.params):
                return self._parking.deliver(client, call)
            if self._keeps_apart(call.upstream):
                call.client = NoElicitor(client)
        elif client.bystander is not None:
            call.client = client.bystander
        elif client.requests is not None:
            call.client = LegacyElicitor(client, client.requests, notify)
        elif self._belongs_to_somebody(client, call.upstream):
            call.client = NoElicitor(client)  # a program that asks in this process, or one that cannot be asked yet
        fields = call.params.fields
        if "inputResponses" in fields or "requestState" in fields:
            # Answers to nothing; a server could take them for those to its questions.
            call.params.drop("inputResponses")
            call.params.drop("requestState")
        return self._plan(call)

    def _keeps_apart(self, server: str) -> bool:
        """Which client a call is of matters to this server, also if it can ask nothing."""
        upstream = self._pool.upstreams.get(server)
        return upstream is not None and not upstream.is_shared

    def _belongs_to_somebody(self, client: Client, server: str) -> bool:
        upstream = self._pool.upstreams.get(server)
        share = upstream.settings.share if upstream is not None else "shared"
        return share == "user" or (share == "project" and bool(client.started_in or client.principal))

    async def _headers_anew(self, call: Call) -> tuple[tuple[str, str], ...]:
        """The `Mcp-Param-*` headers of a call by what the server lists now: it refused the call unseen.

        MCP 2026-07-28, Streamable HTTP, Client Behavior.
        """
        upstream = self._pool.upstreams.get(call.upstream)
        if upstream is not None:
            await upstream.list_again("tools")
        tools = self._catalog.flush().tools.values()
        ref = next((ref for ref in tools if (ref.server, ref.name) == (call.upstream, call.target)), None)
        return mirrored(ref.headers, call.params) if ref is not None else ()


_FINAL = frozenset({b'"complete"'})
"""The only kind of result that a legacy client knows."""
_KINDS = _FINAL | {b'"input_required"', b'"task"'}
"""What a modern client can take: the kinds of the revision, and of the extension that is relayed."""


def _require_kind(server: str, result: Body, kinds: frozenset[bytes]) -> None:
    """A result of another kind must not reach the client: it could not tell what to do with it.

    MCP 2026-07-28, Base Protocol, ResultType: a value that the receiver does not know is invalid.
    """
    if len(result.data) < LARGE and b'"resultType"' not in bytes(result.data):
        return
    kind = bytes(result.get("resultType") or b'"complete"')
    if kind not in kinds:
        shown = kind[:40].decode("utf-8", "replace")
        raise UpstreamGarbled(server, f"its result is of the kind {shown}, which was not declared to it")
