"""The modern era over HTTP (MCP 2026-07-28, Streamable HTTP): every POST stands alone and declares everything itself.

There are no sessions, no GET and no DELETE. Headers repeat parts of the body for those who route by them, and a
request whose headers and body disagree is refused, by the rules of the SDK. A client cancels by leaving the response.
"""

import asyncio
from collections.abc import Coroutine
from copy import copy
from functools import partial
from time import time
from typing import Any

import msgspec
from msgspec.structs import replace

from mcpbridge.core.context import short
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities
from mcpbridge.downstream.client import Answer, Client, Notify
from mcpbridge.downstream.express_lane import ExpressCall, ExpressLane
from mcpbridge.downstream.http.event_streams import Stream
from mcpbridge.downstream.http.exchange import Admission, DirectExchange, Exchange, Refused
from mcpbridge.downstream.http.express_replies import ExpressReplies, ExpressReply
from mcpbridge.downstream.http.reply import (
    ABOUT_TASKS,
    LISTEN,
    OpenReplies,
    Reply,
    ReplyOptions,
    bridge_named,
    envelope_of,
)
from mcpbridge.downstream.http.sessions import Elsewhere
from mcpbridge.downstream.http.token_lifetime import end_of
from mcpbridge.downstream.services import Core
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.protocol.error_codes import INVALID_PARAMS, UNSUPPORTED_VERSION
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.log_levels import LEVELS
from mcpbridge.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, CONVERSATION, LOG_LEVEL, PROTOCOL_VERSION
from mcpbridge.protocol.revisions import MODERN
from mcpbridge.protocol.sdk import (
    classify_inbound_request,
    decode_header_value,
    find_duplicated_routing_header,
    http_status_of,
)

_HEADER_MISMATCH = -32020
_EXPIRED = Refused(401, "The access token expired")
_PARAM = b"mcp-param-"
_ROUTING = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")


class ModernFront:
    """Answers modern requests."""

    def __init__(self, core: Core, settings: HttpSettings, underway: OpenReplies) -> None:
        self._core = core
        self.elsewhere: Elsewhere | None = None
        """The other bridges of a fleet; None: there is none."""
        self._calling = ReplyOptions(
            underway,
            keep_alive=settings.keep_alive,
            open_stream=partial(Stream, max_event=settings.max_event),
            close_stream=Stream.finish,
            status_of=http_status_of,
            max_event=settings.max_event,
            modern=True,
        )
        self._listening = replace(self._calling, is_subscription=True)
        self.express = _ExpressReplies(self, settings.keep_alive)
        """Replies that need no task."""

    def take(self, exchange: DirectExchange, frame: Frame, admission: Admission, lane: ExpressLane) -> bool:
        """Send a call on the express lane, if it is plain. False: nothing was done."""
        try:
            said = _decode_said(frame.params)
        except (msgspec.DecodeError, RecursionError):
            return False
        sender = exchange.sender
        exchange.principal, exchange.identity, exchange.extra = admission.principal, admission.identity, admission.extra
        if isinstance(sender, _Sender) and sender.meta == said.meta and sender.name == said.name and not said.uri:
            client = copy(sender.client)  # the same head, and the same that the rules look at in the body
            client.identity = admission.identity
        else:
            try:
                client = self._client(exchange, frame, bytes(frame.id), exchange.raw_headers)
            except Refused:
                return False
            exchange.sender = _Sender(said.meta, said.name, copy(client))
        return self.express.take(exchange, frame, client, None, lane)

    def answer_sent(self, reply: Reply, frame: Frame, client: Client, sent: ExpressCall) -> Coroutine[Any, Any, None]:
        """Let the reply to a call that was sent on the express lane run to its end."""

        async def work(notify: Notify) -> Answer:
            return await self._core.answer(client, frame, notify, sent=sent)

        async def run() -> None:
            await reply.run(work)

        return run()

    def reply(self, exchange: Exchange, frame: Frame) -> Reply:
        """The reply to a request that ends."""
        return Reply(exchange, frame, self._calling)

    async def post(self, exchange: Exchange, frame: Frame, raw_headers: list[tuple[bytes, bytes]]) -> None:
        """Answer one message.

        Raises:
            Refused: the message breaks a rule of the era.
        """
        if not frame.method:
            raise Refused(400, "In this revision a client sends requests only, no responses")
        if not frame.id:
            await self._notification(exchange)
            return
        id_ = bytes(frame.id)
        client = self._client(exchange, frame, id_, raw_headers)
        if self.elsewhere is not None and not exchange.is_forwarded:
            named = bridge_named(frame)
            if named and await _answered_by(self.elsewhere, named, exchange, id_):
                return
        options = self._calling
        if frame.method == LISTEN:
            if not exchange.accepts.events:
                raise Refused(406, "A subscription is a stream: accept text/event-stream", id_=id_)
            options = self._listening

        async def work(notify: Notify) -> Answer:
            return await self._core.answer(client, frame, notify)

        reply = Reply(exchange, frame, options)
        until = end_of(exchange.identity) if options.is_subscription else None
        if until is None:
            await reply.run(work)
            return
        ending = asyncio.get_running_loop().call_later(max(0.0, until - time()), reply.withdraw, _EXPIRED)
        try:
            await reply.run(work)
        finally:
            ending.cancel()

    async def _notification(self, exchange: Exchange) -> None:
        """Accept and drop it: the era has none over HTTP, but clients in the field send some all the same."""
        version = exchange.header(b"mcp-protocol-version") or ""
        if version not in MODERN:
            supported = {"supported": list(MODERN), "requested": version}
            raise Refused(400, "Unsupported protocol version", code=UNSUPPORTED_VERSION, data=supported)
        await exchange.send_empty(202)

    def _client(self, exchange: Exchange, frame: Frame, id_: bytes, raw_headers: list[tuple[bytes, bytes]]) -> Client:
        if len(exchange.headers) != len(raw_headers):
            lines = ((name.decode("latin-1"), "") for name, _ in raw_headers)
            repeated = find_duplicated_routing_header(lines) or _repeated_param(raw_headers)
            if repeated is not None:
                message = f"{repeated} header appears more than once"
                raise Refused(400, message, code=_HEADER_MISMATCH, id_=id_)
        envelope = envelope_of(frame)
        headers: dict[str, str] = {}
        for name in _ROUTING:
            value = exchange.header(name)
            if value is not None:
                headers[name.decode()] = value
        params = {"_meta": envelope.meta, "name": envelope.name, "uri": envelope.uri}
        broken = classify_inbound_request({"method": frame.method, "params": params}, headers=headers)
        if broken is not None:
            code, message, data = broken
            raise Refused(http_status_of(code, 400), message, code=code, data=data, id_=id_)
        named = decode_header_value(headers.get("mcp-name"))
        if frame.method in ABOUT_TASKS and "mcp-name" in headers and named != envelope.task_id:
            message = "Mcp-Name header does not match params.taskId"
            raise Refused(400, message, code=_HEADER_MISMATCH, id_=id_)
        meta: dict[str, Any] = envelope.meta
        capabilities: object = meta[CLIENT_CAPABILITIES]
        info: object = meta.get(CLIENT_INFO) or {}
        level: object = meta.get(LOG_LEVEL) or ""
        if not isinstance(capabilities, dict) or not isinstance(info, dict) or not isinstance(level, str):
            raise Refused(400, "A member of the _meta envelope has the wrong type", code=INVALID_PARAMS, id_=id_)
        profile = NO_CAPABILITIES
        if capabilities:
            profile = ClientCapabilities.declared(capabilities, meta[PROTOCOL_VERSION])  # pyright: ignore[reportUnknownArgumentType] - keys of decoded JSON are strings
        return Client(
            principal=exchange.principal,
            identity=exchange.identity,
            address=exchange.address,
            view=exchange.endpoint.view,
            profile_name=exchange.endpoint.profile,
            modern=True,
            front="http",
            version=meta[PROTOCOL_VERSION],
            info=info,  # pyright: ignore[reportUnknownArgumentType] - keys of decoded JSON are strings
            capabilities=profile,
            declared_capabilities=capabilities,  # pyright: ignore[reportUnknownArgumentType] - keys of decoded JSON are strings
            log_level=level if level in LEVELS else "",
            conversation=short(meta.get(CONVERSATION, "")),
            param_headers=_param_headers(exchange) if frame.method == "tools/call" else None,
        )


async def _answered_by(elsewhere: Elsewhere, named: str, exchange: Exchange, id_: bytes) -> bool:
    try:
        return await elsewhere.serve_at(named, exchange)
    except Refused as refused:
        refused.id = id_
        raise


class _Said(msgspec.Struct):
    meta: msgspec.Raw = msgspec.field(name="_meta", default_factory=msgspec.Raw)
    name: msgspec.Raw = msgspec.Raw()
    uri: msgspec.Raw = msgspec.Raw()


class _Sender(msgspec.Struct):
    """The client of a request, and what the rules looked at in its body."""

    meta: msgspec.Raw
    name: msgspec.Raw
    client: Client
    """As it was made; each request gets a copy."""


_decode_said = msgspec.json.Decoder(_Said).decode


class _ExpressReplies(ExpressReplies[None]):
    """Replies to plain calls."""

    def __init__(self, front: ModernFront, patience: float) -> None:
        super().__init__(patience)
        self._front = front

    def become(self, reply: ExpressReply[None]) -> Reply:
        return self._front.reply(reply.exchange, reply.frame)

    def run(
        self, reply: Reply, frame: Frame, owner: None, client: Client, sent: ExpressCall
    ) -> Coroutine[Any, Any, None]:
        return self._front.answer_sent(reply, frame, client, sent)


def _param_headers(exchange: Exchange) -> dict[str, str]:
    names = [name for name in exchange.headers if name.startswith(_PARAM)]
    return {name.decode("latin-1"): exchange.header(name) or "" for name in names}


def _repeated_param(raw_headers: list[tuple[bytes, bytes]]) -> str | None:
    """The name of an `Mcp-Param-*` header that came more than once: readers of the first and of the last disagree."""
    names = [name for name, _ in raw_headers if name.startswith(_PARAM)]
    return next((name.decode("latin-1") for name in names if names.count(name) > 1), None)
