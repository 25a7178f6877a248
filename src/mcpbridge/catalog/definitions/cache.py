"""What was made of definitions in earlier runs: what checking them found, and how they are listed.

Most of a start would be spent on checking and shortening definitions that are nearly all what they were the last time.
So the outcome is kept, by server, under digests of everything that it depends on, this program included: it is found
again or made again, and never out of date. What no run asks for any more is not kept any longer.
"""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from mcpbridge.base.log import get_logger
from mcpbridge.base.version import __version__
from mcpbridge.catalog.definitions.check import Changes, Definition, Kind, Unusable, check

log = get_logger("mcpbridge.catalog")

MOST = 20_000
"""Definitions of one server that are remembered in one run."""


class Shown(Struct, frozen=True, array_like=True):
    """How one definition is listed."""

    legacy: bytes
    modern: bytes | None
    """None: as `legacy`."""
    digest: bytes
    """Of both."""


class _Kept(Struct, array_like=True):
    """What is kept of one server."""

    program: bytes
    checked: dict[bytes, Definition]
    """Without their `raw`, which whoever asks has."""
    shown: dict[bytes, Shown]


class Forms:
    """What is kept of all servers."""

    def __init__(self, load: Callable[[str], bytes], save: Callable[[str, bytes], None]) -> None:
        """`load` gives what was saved under a key, if there is something; `save` returns at once. Neither raises."""
        self._load, self._save = load, save
        self._program = _program()
        self._made: dict[str, Made] = {}

    def of(self, server: str) -> "Made":
        """What was made of the definitions of this server."""
        made = self._made.get(server)
        if made is None:
            made = self._made[server] = Made(self._read(server))
        return made

    def keep(self) -> None:
        """Save what is new. Whatever is offered now has been asked for by now, if this is called after a snapshot."""
        for server, made in self._made.items():
            if made.is_new:
                checked = {key: structs.replace(found, raw=b"") for key, found in made.checked.items()}
                try:
                    data = _encode(_Kept(self._program, checked, made.shown))
                except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                    log.debug("forms cannot be kept", upstream=server, reason=str(error))
                else:
                    self._save(_key(server), data)
            made.settle()

    def _read(self, server: str) -> _Kept:
        data = self._load(_key(server))
        if data:
            try:
                kept = _decode(data)
                if kept.program == self._program:
                    return kept
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                log.debug("forms cannot be read", upstream=server, reason=str(error))
        return _Kept(self._program, {}, {})


class Made:
    """What was made of the definitions of one server."""

    def __init__(self, kept: _Kept) -> None:
        self._kept: _Kept | None = kept
        """From earlier runs, until it is clear what of it is still of use."""
        self.checked: dict[bytes, Definition] = {}
        self.shown: dict[bytes, Shown] = {}
        self.is_new = False
        """There is something that was not kept before."""

    def check(self, kind: Kind, raw: bytes, *, over_http: bool) -> Definition | Unusable:
        """As `definitions.check`."""
        key = blake2b(raw, digest_size=16, salt=b"%c%d" % (kind[0].encode(), over_http)).digest()
        found = self.checked.get(key) or (self._kept.checked.get(key) if self._kept is not None else None)
        if found is not None:
            self.checked[key] = found
            return structs.replace(found, raw=raw)
        self.is_new = True
        made = check(kind, raw, over_http=over_http)
        if isinstance(made, Definition):
            self.checked[key] = made
        return made

    def show(self, definition: Definition, changes: Changes, level: str, make: Callable[[], Shown]) -> Shown:
        """How a definition is listed under these changes at this level, made by `make` if it is not known."""
        all_changes = (changes, definition.changes, definition.for_legacy, definition.for_modern)
        how = repr((definition.kind, level, [tuple(some.items()) for some in all_changes])).encode()
        key = blake2b(definition.raw, digest_size=16, key=blake2b(how, digest_size=32).digest()).digest()
        shown = self.shown.get(key) or (self._kept.shown.get(key) if self._kept is not None else None)
        if shown is None:
            self.is_new = True
            shown = make()
        self.shown[key] = shown
        return shown

    def settle(self) -> None:
        """All that was asked for so far is kept, and nothing else."""
        self._kept, self.is_new = None, False
        if len(self.shown) > MOST:  # a server that says something else each time
            self.checked, self.shown = {}, {}


def _key(server: str) -> str:
    return f"forms of {server}"


def _program() -> bytes:
    """What forms are made by: this version, and what became of its files since."""
    said: list[object] = [__version__]
    try:
        for file in sorted(Path(__file__).parents[1].rglob("*.py")):
            status = file.stat()
            said.append((file.name, status.st_size, status.st_mtime_ns))
    except OSError:  # no directory: out of an archive
        said = [__version__]
    return blake2b(repr(said).encode(), digest_size=16).digest()


def _plain(value: object) -> Any:
    """What MessagePack knows in place of a read-only mapping."""
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise NotImplementedError


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_decode = msgspec.msgpack.Decoder(_Kept).decode
