"""Which era a server speaks, judged from how it answers `server/discover`; pure.

The rules are those of MCP 2026-07-28, stdio, Backward Compatibility. The probe goes over the very connection that will
be used; a server that dies of it (rmcp exits on any request before `initialize`) is started again and spoken to in the
old way (`ProbeKilled`).
"""

from enum import Enum
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from mcpbridge.base.errors import BridgeError, UpstreamAnswered, UpstreamGarbled, UpstreamHttpError
from mcpbridge.protocol.revisions import LEGACY, MODERN

PROBE_SECONDS = 2.5
"""Silence for so long after the probe and the bridge sends `initialize` too; whichever is answered decides."""
LATE_PROBE_SECONDS = 1.0
"""Once `initialize` has failed, the answer to the probe is waited for so long."""

_MODERN_ERRORS = frozenset({-32020, -32021, -32022})


class Verdict(Enum):
    """What an answer to the probe means."""

    LEGACY = "legacy"
    UNKNOWN = "unknown"
    """The failure says nothing about the era: the network, authorization, the server's health."""


class Discovered(Struct, frozen=True):
    """A modern server, and what it said of itself."""

    version: str
    capabilities: dict[str, Any]
    instructions: str
    server_info: dict[str, Any]


class Unsupported(Struct, frozen=True):
    """A modern server with no revision that the bridge speaks."""

    versions: list[str]


class ProbeKilled(Exception):
    """The server ended when it was probed: start it again and use the handshake."""


class _DiscoverResult(msgspec.Struct, rename="camel"):
    supported_versions: list[str]
    capabilities: dict[str, Any] = {}
    instructions: str | None = None
    meta: dict[str, Any] = msgspec.field(default_factory=dict[str, Any], name="_meta")
    server_info: dict[str, Any] = {}


class _Error(msgspec.Struct):
    code: int = 0
    data: Raw = Raw(b"{}")


class _ErrorData(msgspec.Struct):
    supported: list[str] = []


_decode_error_data = msgspec.json.Decoder(_ErrorData).decode
_decode_discover = msgspec.json.Decoder(_DiscoverResult).decode
_decode_error = msgspec.json.Decoder(_Error).decode


def judge(answer: Raw | BridgeError) -> Discovered | Unsupported | Verdict:
    """The verdict from the probe's result, or from the error that came instead."""
    if isinstance(answer, UpstreamAnswered):
        return _judge_error(answer.error)
    if isinstance(answer, UpstreamHttpError):
        is_refusal = 400 <= answer.status < 500 and answer.status not in (401, 403, 408, 425, 429)
        return Verdict.LEGACY if is_refusal else Verdict.UNKNOWN
    if isinstance(answer, UpstreamGarbled):
        return Verdict.LEGACY  # it has something for a method that it does not know
    if isinstance(answer, BridgeError):
        return Verdict.UNKNOWN
    try:
        body = _decode_discover(answer)
    except msgspec.DecodeError:
        return Verdict.LEGACY  # it answers anything with something
    shared = [version for version in MODERN if version in body.supported_versions]
    if shared:
        return Discovered(shared[-1], body.capabilities, body.instructions or "", _server_info(body))
    if any(version in LEGACY for version in body.supported_versions):
        return Verdict.LEGACY
    return Unsupported(body.supported_versions)


def _server_info(body: _DiscoverResult) -> dict[str, Any]:
    info = body.meta.get("io.modelcontextprotocol/serverInfo", body.server_info)
    return cast("dict[str, Any]", info) if isinstance(info, dict) else {}


def _judge_error(error: bytes) -> Discovered | Unsupported | Verdict:
    try:
        body = _decode_error(error)
    except msgspec.DecodeError:
        return Verdict.LEGACY
    if body.code not in _MODERN_ERRORS:
        return Verdict.LEGACY
    try:
        versions = _decode_error_data(body.data).supported
    except msgspec.DecodeError:
        versions = []
    if versions and not any(version in MODERN for version in versions):
        return Verdict.LEGACY if any(version in LEGACY for version in versions) else Unsupported(versions)
    return Discovered(MODERN[-1], {}, "", {})
