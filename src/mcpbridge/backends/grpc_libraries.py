"""The libraries of the extra `grpc`, loaded when the first backend of this kind runs.

They come without types, so what is theirs is `Any` here and in the modules that use them. Of the two clients for
asyncio, grpcio is the one that the gRPC project itself keeps: 19 MB, and 0.05 s to import. grpclib (3 MB with what it
needs) takes as long to import and leaves the retries of connections, message limits and name resolution to us.
"""

import os
from importlib import import_module
from typing import Any

from msgspec import Struct

from mcpbridge.errors import ConfigError

__all__ = ["Libraries", "load"]

_ENVIRONMENT = {"GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
"""Else it writes to standard error of its own accord: of each program that is started meanwhile, and of each connection
that is lost, which statuses tell as well. What people have set stays."""


class Libraries(Struct, frozen=True):
    """The modules."""

    grpc: Any
    aio: Any
    descriptors: Any
    """`google.protobuf.descriptor_pb2`"""
    pools: Any
    """`google.protobuf.descriptor_pool`"""
    messages: Any
    """`google.protobuf.message_factory`"""
    json: Any
    """`google.protobuf.json_format`"""
    DecodeError: Any


def load() -> Libraries:
    """The libraries.

    Raises:
        ConfigError: they are not installed.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        return Libraries(
            import_module("grpc"),
            import_module("grpc.aio"),
            import_module("google.protobuf.descriptor_pb2"),
            import_module("google.protobuf.descriptor_pool"),
            import_module("google.protobuf.message_factory"),
            import_module("google.protobuf.json_format"),
            import_module("google.protobuf.message").DecodeError,
        )
    except ImportError as error:
        raise ConfigError(
            f"tools of gRPC servers need packages that are not installed ({error.name or error})",
            key="grpc",
            hint="Install them with: pip install 'mcpbridge[grpc]'",
        ) from error
