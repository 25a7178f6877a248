"""The format in which the definitions of one server are saved between runs: MessagePack, under a key of the server.

It begins with a digest of this program. What another version saved, or this one before its files changed, does not
count: the same definitions may be checked and shortened otherwise now.
"""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from mcpbridge.base.version import __version__
from mcpbridge.catalog.definitions.check import Definition
from mcpbridge.catalog.definitions.scanner.finding import Scanned


class ListedDefinition(Struct, frozen=True, array_like=True, gc=False):
    """How one definition is listed."""

    legacy: bytes
    modern: bytes | None
    """None: as `legacy`."""
    digest: bytes
    """Of both."""


class SavedDefinitions(Struct, array_like=True):
    """What is saved of one server."""

    program: bytes
    """See `program_digest`."""
    checked: dict[bytes, Definition]
    """Without their `raw`, which whoever asks has."""
    listed: dict[bytes, ListedDefinition]
    scanned: dict[bytes, Scanned] = {}
    """What the scanner found, of a server whose texts are not trusted."""


def key_of(server: str) -> str:
    """The key under which the definitions of this server are saved."""
    return f"forms of {server}"


def program_digest() -> bytes:
    """A digest of the program that checks and shortens definitions: its version, and what became of its files since."""
    parts: list[object] = [__version__]
    try:
        for file in sorted(Path(__file__).parents[1].rglob("*.py")):
            status = file.stat()
            parts.append((file.name, status.st_size, status.st_mtime_ns))
    except OSError:  # no directory: out of an archive
        parts = [__version__]
    return blake2b(repr(parts).encode(), digest_size=16).digest()


def _plain(value: object) -> Any:
    """What MessagePack knows in place of a read-only mapping."""
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - of any keys
    raise NotImplementedError


encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
decode = msgspec.msgpack.Decoder(SavedDefinitions).decode
