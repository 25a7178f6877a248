"""The `_meta` object of requests: which keys end at the bridge and which cross it; pure.

MCP 2026-07-28, Base Protocol, `_meta`: protocol version, capabilities, client identity, log level and progress token
belong to one hop. Trace context and every vendor's key belong to both ends. Which request a notification is about is
read here, too, in the raw spelling of the id; it is empty where it names none, or cannot be read.
"""

import re

import msgspec
from msgspec import Raw

from mcpbridge.protocol.body import LARGE, Body
from mcpbridge.protocol.jsonrpc import OBJECT_START, Fields, decode_fields, encode, first_byte

PREFIX = "io.modelcontextprotocol/"
PROTOCOL_VERSION = PREFIX + "protocolVersion"
CLIENT_CAPABILITIES = PREFIX + "clientCapabilities"
CLIENT_INFO = PREFIX + "clientInfo"
LOG_LEVEL = PREFIX + "logLevel"
SERVER_INFO = PREFIX + "serverInfo"
SUBSCRIPTION_ID = PREFIX + "subscriptionId"

TURN = "mcpbridge/turn"
"""In `_meta` of a request: names the model turn that it belongs to, of which only a few calls run at a time."""
RUN = "mcpbridge/run"
"""In `_meta` of a request: names the run (one piece of work, of several calls) that it belongs to."""
CONTEXT = "mcpbridge/context"
"""In `_meta` of a request: what the client says of itself: `tenant`, `user` (text), `metadata` (an object)."""
CALL = "mcpbridge/call"
"""In `_meta` of a tool call: the model's own id of the call."""
APPROVALS = "mcpbridge/approvals"
"""In `_meta` of a tool call: `pause` if it must not wait for a person; it is refused, with the id to approve it by."""
APPROVAL = "mcpbridge/approval"
"""In `_meta` of a call that nobody answered for: the id to approve it by. Of a request: it is that call made again."""
CONVERSATION = "mcpbridge/conversation"
"""In `_meta` of a modern request over HTTP: names the client's conversation that it belongs to."""
TRANSFORM = "mcpbridge/transform"
"""In `_meta` of a call: a script over its result, as the argument `_transform`, which some tools have themselves."""
WHOLE = "mcpbridge/results"
"""In `_meta` of a call: `whole` if its result must not be shortened, however large; for programs."""
QUERY = "mcpbridge/query"
"""In `_meta` of a list request: what the client is about to do, as text or sampling messages; the list is for that."""
OWN = "mcpbridge/"
"""Begins every key that is for a bridge; none crosses it."""

_HOP_BY_HOP = frozenset(
    {
        PROTOCOL_VERSION,
        CLIENT_CAPABILITIES,
        CLIENT_INFO,
        LOG_LEVEL,
        SERVER_INFO,
        SUBSCRIPTION_ID,
        PREFIX + "related-task",  # whose id is the bridge's own; what is relayed of tasks puts the server's
        PREFIX + "model-immediate-response",
        "progressToken",
    }
)


class RequestMeta:
    """Makes the `_meta` that requests to one upstream carry."""

    def __init__(self, version: str, client_info: dict[str, str], capabilities: bytes = b"{}") -> None:
        """`version` is empty for a legacy session, whose requests carry no envelope."""
        self._envelope: Fields = {}
        if version:
            self._envelope = {
                PROTOCOL_VERSION: Raw(encode(version)),
                CLIENT_CAPABILITIES: Raw(capabilities),
                CLIENT_INFO: Raw(encode(client_info)),
            }
        self._alone: tuple[bytes, Raw] = b"", Raw()
        """The whole `_meta` of the last request that had nothing but the envelope, behind its capabilities."""

    def put(
        self,
        params: Body,
        client_meta: Body | None,
        *,
        token: bytes = b"",
        log_level: str = "",
        capabilities: bytes = b"",
    ) -> bytes | Raw:
        """The bytes to send: `params` with its `_meta` made anew in place.

        `client_meta` is what the client sent: its own keys cross, in their order. `capabilities` are those of this
        request, in place of the usual ones.
        """
        if client_meta is None and not self._envelope and not token:
            return params.data
        sent = client_meta.fields if client_meta is not None else {}
        if capabilities and not token and not log_level and sent.keys() <= _HOP_BY_HOP and self._envelope:
            # The usual request to a modern server, whose client has no keys of its own.
            known, alone = self._alone
            if known != capabilities:
                alone = Raw(encode(self._envelope | {CLIENT_CAPABILITIES: Raw(capabilities)}))
                self._alone = capabilities, alone
            params.put("_meta", alone)
            return params.data
        meta = {key: value for key, value in sent.items() if key not in _HOP_BY_HOP and not key.startswith(OWN)}
        if self._envelope:
            meta |= self._envelope
            if capabilities:
                meta[CLIENT_CAPABILITIES] = Raw(capabilities)
            if log_level:
                meta[LOG_LEVEL] = Raw(encode(log_level))
        if token:
            meta["progressToken"] = Raw(token)
        if meta or "_meta" in params:
            params.put("_meta", meta)
        return params.data


def complete_for_modern(
    result: Body, server_info: bytes, *, cacheable: bool = False, is_of_answers: bool = False
) -> Body:
    """An upstream's result as a modern client must get it: with `resultType`, our `serverInfo`, and cache hints.

    The server's own hints stay, but a result that came of the client's answers (`is_of_answers`: the request carried
    `inputResponses` or a `requestState`) is good for this once, and a question is nothing to keep.
    """
    data = bytes(result.data) if len(result.data) < LARGE else b'"_meta"'
    if not cacheable and b'"_meta"' not in data and b'"resultType"' not in data:
        # The usual case without a parse: two members put before the first of the upstream's own.
        head = b'{"resultType":"complete","_meta":{"%b":%b}' % (SERVER_INFO.encode(), server_info)
        is_empty = _BLANK.fullmatch(data) is not None
        return Body(head + (b"}" if is_empty else b"," + data[1:]))
    fields = result.fields
    if (kind := fields.get("resultType")) is None:
        result.put("resultType", "complete")
    elif bytes(kind) == b'"input_required"':
        result.drop("ttlMs")
        result.drop("cacheScope")
        cacheable = False
    if cacheable:
        if is_of_answers or "ttlMs" not in fields:
            result.put("ttlMs", 0)
        if is_of_answers or "cacheScope" not in fields:
            result.put("cacheScope", "private")
    meta = fields.get("_meta")
    members = {} if meta is None or first_byte(meta) != OBJECT_START else decode_fields(meta)
    members[SERVER_INFO] = Raw(server_info)
    result.put("_meta", members)
    return result


_BLANK = re.compile(rb"\{\s*\}")
"""An empty object, however much space is within its braces."""


def strip_for_legacy(result: Body) -> None:
    """Take out of a modern upstream's result what 2026-07-28 put around it."""
    result.drop("resultType", "ttlMs", "cacheScope")
    meta = result.fields.get("_meta")
    if meta is not None and first_byte(meta) == OBJECT_START:
        members = decode_fields(meta)
        if members.pop(SERVER_INFO, None) is not None:
            if members:
                result.put("_meta", members)
            else:
                result.drop("_meta")


class _ProgressParams(msgspec.Struct, rename="camel"):
    progress_token: Raw = Raw()


class _CancelledParams(msgspec.Struct, rename="camel"):
    request_id: Raw = Raw()


class _Reason(msgspec.Struct):
    reason: str = ""


class _Stamp(msgspec.Struct):
    subscription: Raw = msgspec.field(default=Raw(), name=SUBSCRIPTION_ID)


class _Stamped(msgspec.Struct):
    meta: _Stamp = msgspec.field(default_factory=_Stamp, name="_meta")


_SUBSCRIPTION = SUBSCRIPTION_ID.split("/")[-1].encode()
"""The slash before it may be escaped."""
_decode_stamped = msgspec.json.Decoder(_Stamped).decode
_decode_progress = msgspec.json.Decoder(_ProgressParams).decode
_decode_reason = msgspec.json.Decoder(_Reason).decode
_decode_cancelled = msgspec.json.Decoder(_CancelledParams).decode


def cancelled_id(params: Raw) -> bytes:
    """The request that a `notifications/cancelled` is about."""
    try:
        return bytes(_decode_cancelled(params).request_id)
    except (msgspec.DecodeError, RecursionError):
        return b""


def cancelled_reason(params: Raw) -> str:
    """Why, in the words of a `notifications/cancelled`."""
    try:
        return _decode_reason(params).reason
    except (msgspec.DecodeError, RecursionError):
        return ""


def progress_token(params: Raw) -> bytes:
    """The token of a `notifications/progress`."""
    try:
        return bytes(_decode_progress(params).progress_token)
    except msgspec.DecodeError:
        return b""


def subscription_id(params: Raw) -> bytes:
    """The listen request that a message on a channel of one stream belongs to (MCP 2026-07-28); mostly none."""
    if _SUBSCRIPTION not in bytes(params):
        return b""
    try:
        return bytes(_decode_stamped(params).meta.subscription)
    except msgspec.DecodeError:
        return b""
