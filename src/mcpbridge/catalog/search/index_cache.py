"""What was made of the tools of each server for the search, on disk, so that the next start need not make it again.

It is kept for each server under a digest of all that it was made of, this program included, so it is never out of date.
A file that is damaged, or of another version, counts as not there. It holds words and vectors of tools, no secrets.
"""

from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import Struct

from mcpbridge.base.log import get_logger
from mcpbridge.catalog.definitions.format import program_digest
from mcpbridge.catalog.search.lexical.bm25 import Postings, server_fields, tool_fields
from mcpbridge.catalog.search.published_tools import PublishedTools
from mcpbridge.catalog.search.ranker import ServerText, ToolText

log = get_logger("mcpbridge.routing")

_DIGEST = 16
"""Bytes of a digest."""
_DATA = Path(__file__).resolve().parent / "lexical" / "data"


class ServerIndex(Struct, frozen=True, eq=False, array_like=True):
    """What is made of one server. Each part is one object, for there may be thousands of tools."""

    digest: bytes
    """Of all that it was made of."""
    stems: str
    """Of each tool's name, those that are not in its server's, with blanks between; a line a tool."""
    postings: Postings
    vectors: bytes
    """As `word_vectors.packed` has them."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ServerIndex).decode


def digest_of(server: ServerText, tools: Sequence[ToolText]) -> bytes:
    """A digest of the texts of a server and its tools, or of what these are read from, and of what reads them."""
    try:
        said = _encode((server, tools.definitions if isinstance(tools, PublishedTools) else tools))
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError):  # too deep, say: what is looked at of it
        read = [(tool.id, tool.tags, tool_fields(tool)) for tool in tools]
        said = repr((server, server_fields(server), read)).encode("utf-8", "backslashreplace")
    return blake2b(said, digest_size=_DIGEST, key=_program()).digest()


@cache
def _program() -> bytes:
    sizes = [(file.name, file.stat().st_size) for file in sorted(_DATA.iterdir())] if _DATA.is_dir() else []
    return blake2b(program_digest() + repr(sizes).encode(), digest_size=32).digest()


class IndexCache:
    """The indexes of all servers on disk. Its methods are called in a thread, one at a time."""

    def __init__(self, load: Callable[[str], bytes], save: Callable[[str, bytes], None]) -> None:
        """`load` gives what was saved under a key, or nothing; `save` may be called in any thread. Neither raises."""
        self._load, self._save = load, save

    def get(self, server: str, digest: bytes) -> ServerIndex | None:
        """The index of a server that was made of these texts; None if there is none."""
        data = self._load(_key(server))
        if len(data) <= _DIGEST or _checksum(data[_DIGEST:]) != data[:_DIGEST]:
            return None
        try:
            found = _decode(data[_DIGEST:])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            log.debug("a stored index cannot be read", upstream=server, reason=str(error))
            return None
        return found if found.digest == digest else None

    def put(self, server: str, index: ServerIndex) -> None:
        """Keep the index of a server, in place of the one before."""
        try:
            data = _encode(index)
        except (msgspec.MsgspecError, ValueError) as error:  # a name with half a character
            log.debug("an index cannot be stored", upstream=server, reason=str(error))
            return
        self._save(_key(server), _checksum(data) + data)


def _key(server: str) -> str:
    return f"index of {server}"


def _checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST).digest()
