"""The connection to one gRPC server. It is made at the first call, and made anew by itself whenever it is lost."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from mcpbridge.backends.grpc_known import Known
from mcpbridge.backends.grpc_libraries import Libraries
from mcpbridge.backends.grpc_settings import GrpcSettings, GrpcTls
from mcpbridge.errors import ConfigError
from mcpbridge.redaction import SECRET_NAME

__all__ = ["Server", "metadata_of", "open_channel", "secrets_of"]

_RECONNECT_FIRST, _RECONNECT_LONGEST = 500, 5_000
"""Milliseconds between attempts to connect; a call that comes meanwhile fails at once, so they are short."""


class Server(Struct, frozen=True):
    """The way to one server."""

    libraries: Libraries
    known: Known
    channel: Any
    metadata: tuple[tuple[str, str | bytes], ...]


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
