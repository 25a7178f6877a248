"""Read the `_meta` envelope of a modern request (MCP 2026-07-28, basic: per-request protocol fields).

This is for channels without headers. `http/stateless.py` checks its headers first and makes its `Client` the same
way.
"""

from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import BadRequest
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities
from mcpbridge.downstream.client import Client
from mcpbridge.protocol.error_codes import INVALID_PARAMS, UNSUPPORTED_VERSION
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.log_levels import LEVELS
from mcpbridge.protocol.revisions import MODERN

ENVELOPE = b"modelcontextprotocol"
"""Is in the params of every modern request. The slash that follows may be escaped."""


class _Meta(msgspec.Struct):
    version: Any = msgspec.field(default=msgspec.UNSET, name="io.modelcontextprotocol/protocolVersion")
    capabilities: Any = msgspec.field(default=msgspec.UNSET, name="io.modelcontextprotocol/clientCapabilities")
    info: Any = msgspec.field(default=None, name="io.modelcontextprotocol/clientInfo")
    log_level: Any = msgspec.field(default=None, name="io.modelcontextprotocol/logLevel")


class _Params(msgspec.Struct):
    meta: Raw = msgspec.field(default_factory=Raw, name="_meta")


_decode_params = msgspec.json.Decoder(_Params).decode
_decode_meta = msgspec.json.Decoder(_Meta).decode


def reads_as_modern(frame: Frame) -> bool:
    """Whether this request carries the modern envelope, or a part of it. Cheap for those that do not.

    One required key without the other is an incomplete envelope, not a legacy request.
    """
    params = bytes(frame.params)
    if ENVELOPE not in params:
        return False
    try:
        meta = _decode_meta(_meta_of(params))
    except (msgspec.DecodeError, RecursionError):
        return False
    return meta.version is not msgspec.UNSET or meta.capabilities is not msgspec.UNSET


def modern_client(frame: Frame, principal: str = "") -> Client:
    """The sender of a modern request, as its envelope declares it.

    Raises:
        BadRequest: -32602 a required key is missing or has the wrong shape; -32022 a revision that is not spoken.
    """
    try:
        meta = _decode_meta(_meta_of(bytes(frame.params)))
    except msgspec.DecodeError:
        meta = _Meta()
    for key, value, kind in (
        ("protocolVersion", meta.version, str),
        ("clientCapabilities", meta.capabilities, dict),
    ):
        if not isinstance(value, kind):
            raise BadRequest(
                INVALID_PARAMS,
                f"params._meta must have io.modelcontextprotocol/{key} ({_KINDS[kind]}) on every request",
            )
    if meta.version not in MODERN:
        raise BadRequest(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": list(MODERN), "requested": meta.version},
        )
    info = meta.info
    return Client(
        principal=principal,
        modern=True,
        version=meta.version,
        info=cast("dict[str, Any]", info) if isinstance(info, dict) else {},
        declared_capabilities=meta.capabilities,
        capabilities=ClientCapabilities.declared(meta.capabilities, meta.version)
        if meta.capabilities
        else NO_CAPABILITIES,
        log_level=meta.log_level if meta.log_level in LEVELS else "",
    )


def _meta_of(params: bytes) -> Raw:
    try:
        return _decode_params(params).meta
    except msgspec.DecodeError:
        return Raw()


def client_on_channel(frame: Frame, session: Client) -> Client:
    """The sender of a modern request on the channel of `session`. Raises: as `modern_client`."""
    client = modern_client(frame, session.principal)
    client.view, client.profile_name = session.view, session.profile_name
    client.identity, client.address, client.front = session.identity, session.address, session.front
    return client


class Sender:
    """Who sends the modern requests of one channel: as long as they say the same of it, it is not read again."""

    __slots__ = ("_client", "_meta")

    def __init__(self) -> None:
        self._meta, self._client = Raw(), Client()

    def of(self, frame: Frame, session: Client) -> Client | None:
        """The client of this request on the channel of `session`; None: it is no modern one, or not a valid one."""
        try:
            meta = _decode_params(frame.params).meta
            if meta != self._meta or self._client.identity is not session.identity:
                if not reads_as_modern(frame):
                    return None
                self._client, self._meta = client_on_channel(frame, session), meta
        except (msgspec.DecodeError, RecursionError, BadRequest):
            return None
        return self._client


_KINDS = {str: "a string", dict: "an object"}
