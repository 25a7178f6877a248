"""The connection to one gRPC server, and what a status that is not OK means for a call.

The connection is made at the first call, and made anew by itself whenever it is lost. A bad status becomes an error of
the bridge, or a result that a model can learn from.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mcpbridge.base.errors import ConfigError, UpstreamError, UpstreamGone, UpstreamTimeout, UpstreamUnavailable
from mcpbridge.base.masking.known_values import SECRET_NAME
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.grpc.message_types import Libraries
from mcpbridge.tools.grpc.settings import GrpcSettings, GrpcTls

_RECONNECT_FIRST, _RECONNECT_LONGEST = 500, 5_000
"""Milliseconds between attempts to connect; a call that comes meanwhile fails at once, so they are short."""


def open_channel(libraries: Libraries, settings: GrpcSettings, directory: Path) -> Any:
    """A channel; the caller closes it.

    Raises:
        ConfigError: a file of `tls` cannot be used.
    """
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", settings.max_message),
        ("grpc.max_send_message_length", settings.max_message),
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_FIRST),
        ("grpc.min_reconnect_backoff_ms", _RECONNECT_FIRST),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_LONGEST),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.use_local_subchannel_pool", 1),  # else backends of one address share the state of their connection
        ("grpc.primary_user_agent", "mcpbridge"),
    ]
    if settings.is_here:
        options.append(("grpc.enable_http_proxy", 0))
    if not settings.encrypted:
        return libraries.aio.insecure_channel(settings.grpc, options=options)
    tls = settings.tls if isinstance(settings.tls, GrpcTls) else GrpcTls()
    if tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    credentials = libraries.grpc.ssl_channel_credentials(
        root_certificates=_read(directory, tls.ca, "tls.ca"),
        private_key=_read(directory, tls.key, "tls.key"),
        certificate_chain=_read(directory, tls.cert, "tls.cert"),
    )
    return libraries.aio.secure_channel(settings.grpc, credentials, options=options)


def metadata_of(settings: GrpcSettings) -> tuple[tuple[str, str | bytes], ...]:
    """What goes with every call, as the library takes it."""
    return tuple(
        (key, base64.b64decode(value) if key.endswith("-bin") else value) for key, value in settings.metadata.items()
    )


def secrets_of(settings: GrpcSettings) -> Iterator[str]:
    """What of the metadata nobody is to see."""
    for key, value in settings.metadata.items():
        if SECRET_NAME.search(key):
            yield from (value, value.rpartition(" ")[2])  # servers may repeat the secret of `Bearer x` alone
            if key.endswith("-bin"):
                yield base64.b64decode(value).decode(errors="ignore")


def _read(directory: Path, path: str | None, key: str) -> bytes | None:
    if path is None:
        return None
    try:
        data = (directory / Path(path).expanduser()).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", key=key) from error
    if b"-----BEGIN" not in data:
        raise ConfigError(f"{path} is no PEM file", key=key)
    return data


_LONGEST = 2000
"""Characters of what a server says of an error that are passed on."""
_MOST_FIELDS = 20
"""Fields that are named, of those that are wrong."""

_ADVICE = {
    "INVALID_ARGUMENT": "Correct the arguments, then call again.",
    "NOT_FOUND": "Check the names and ids of the arguments.",
    "ALREADY_EXISTS": "It exists already: look at it, or choose another name.",
    "FAILED_PRECONDITION": "Something else has to be done first; the same call does not help until then.",
    "OUT_OF_RANGE": "Stay within the range.",
    "PERMISSION_DENIED": "These credentials do not permit it: do not try again, tell the user.",
    "UNAUTHENTICATED": "The server requires other credentials: `metadata` of this tool in the configuration has them.",
    "RESOURCE_EXHAUSTED": "A quota or a size is used up: ask for less, or try again later.",
    "ABORTED": "Something else changed the same at the same time: read it again, then try once more.",
    "UNIMPLEMENTED": "The server does not do this. Do not try again.",
    "CANCELLED": "The server gave up. Check whether the action took effect before you repeat it.",
    "INTERNAL": "The fault is at the server.",
    "UNKNOWN": "The fault is at the server.",
    "DATA_LOSS": "The fault is at the server.",
}
_NOT_CONNECTED = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "dns resolution failed",
    "name resolution failure",
    "empty address list",
    "channel is closed",
)
"""What the library says when a call was not sent, in lower case."""


def not_sent(error: Any) -> bool:
    """The server cannot be reached: it did not see the call."""
    said = (error.details() or "").lower()
    return error.code().name == "UNAVAILABLE" and any(phrase in said for phrase in _NOT_CONNECTED)


def ended_early(error: Any) -> bool:
    """The server ended a stream while we wrote to it; the library does not say with what status."""
    return error.code().name == "INTERNAL" and error.details() == "Internal error from Core"


def why(error: Any, redact: Callable[[str], str]) -> str:
    """What went wrong, in a line."""
    said = redact(" ".join((error.details() or "").split())[:_LONGEST])
    return f"{error.code().name}: {said}" if said else error.code().name


Violations = Callable[[bytes], list[tuple[str, str]]]
"""Reads fields, and what is wrong with them, from an encoded `google.rpc.Status`."""


def outcome(
    error: Any, upstream: str, *, violations: Violations, seconds: float, limit: str, redact: Callable[[str], str]
) -> Body:
    """The result that reports an error, after so many seconds. `limit`: how large a message may be.

    Raises:
        UpstreamError: the server was not reached, is not there any more, or did not answer in time.
    """
    code = error.code().name
    if code == "DEADLINE_EXCEEDED":
        raise UpstreamTimeout(upstream, round(seconds, 3)) from error
    if code == "UNAVAILABLE":
        kind: type[UpstreamError] = UpstreamUnavailable if not_sent(error) else UpstreamGone
        raise kind(upstream, why(error, redact)) from error
    if ended_early(error):
        return failure(
            "The server ended the call before all was sent, and why is not known. Check whether the action took effect "
            "before you repeat it."
        )
    advice = _ADVICE.get(code, "")
    said = (error.details() or "").lower()
    if code == "RESOURCE_EXHAUSTED" and "message larger than max" in said:
        advice = f"A message may have {limit}: ask for less, or have `max_message` of this tool raised."
    text = f"The server answered {why(error, redact)}"
    fields = _violations(error, violations, redact)
    return failure(" ".join(part for part in (_sentence(text), *fields, advice) if part))


def failure(text: str, more: Mapping[str, Any] | None = None) -> Body:
    """A result that reports an error."""
    return Body(encode({"content": [{"type": "text", "text": text}], **(more or {}), "isError": True}))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _violations(error: Any, read: Violations, redact: Callable[[str], str]) -> list[str]:
    """Which fields are wrong, where the server says so."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            found = read(value)[:_MOST_FIELDS]
            return [redact(_sentence(f"{field}: {said[:300]}" if field else said[:300])) for field, said in found]
    return []
