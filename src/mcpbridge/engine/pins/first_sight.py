"""What was seen of each server first: what changes are compared with where there is no `servers.lock`.

One file a server in a directory of the configuration's own, below the user's state: nobody else may read it. Beside it
is a small file with the digests of what was compared last and not found changed, so that a start with the same
definitions compares nothing. A file that cannot be read counts as none: then the next sight is the first.
"""

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from mcpbridge.base.log import get_logger

log = get_logger("mcpbridge.pins")

FORMAT = 1
"""Of the files; those of another one are as good as none."""
LARGEST = 64 * 1024**2
"""Bytes of a file."""


class Sight(Struct, frozen=True):
    """What was seen of one server first."""

    server: str
    seen: dict[str, dict[str, Raw]] = {}
    """By kind and name, each definition as it came; a kind that was not looked at is missing."""
    format: int = FORMAT

    def having(self, kind: str, definitions: dict[str, bytes]) -> "Sight":
        """The same with these definitions of a kind, which is seen now."""
        return Sight(self.server, {**self.seen, kind: {name: Raw(one) for name, one in definitions.items()}})

    def definitions(self) -> dict[Any, dict[str, bytes]]:
        """What was seen, by kind and name."""
        return {kind: {name: bytes(one) for name, one in of.items()} for kind, of in self.seen.items()}


class Checked(Struct, frozen=True):
    """Digests of what was compared and is as it was agreed to; each with that of what it was compared with."""

    lists: str = ""
    instructions: str = ""
    facts: str = ""


_encode = msgspec.json.Encoder().encode


class SightStore:
    """The files of one configuration. Nothing in here raises."""

    def __init__(self, directory: Path | None) -> None:
        """`directory`: of all configurations, made when there is something to keep; None: nothing outlives this."""
        self._root = directory
        self._directory: Path | None = None
        self._sights: dict[str, Sight] = {}
        self._checked: dict[str, Checked] = {}
        self._has_complained = False

    def follow(self, source: str | None) -> None:
        """From now on it is about this configuration. Without a file, nothing outlives the process."""
        directory = None
        if self._root is not None and source is not None:
            real = os.path.realpath(source).encode(errors="surrogateescape")
            directory = self._root / hashlib.sha256(real).hexdigest()[:16]
        if directory != self._directory:
            self._directory = directory
            self._sights, self._checked = {}, {}

    def sight(self, server: str) -> Sight:
        """What was seen of this server first; empty: nothing so far."""
        if self._directory is None:
            return self._sights.get(server) or Sight(server)
        try:
            found = msgspec.json.decode(self._read(server, ".json"), type=Sight)
        except (OSError, ValueError, RecursionError):
            return Sight(server)
        return found if found.format == FORMAT and found.server == server else Sight(server)

    def keep(self, sight: Sight) -> None:
        """Keep this as what was seen of its server first."""
        if self._directory is None:
            self._sights[sight.server] = sight
        else:
            self._write(sight.server, ".json", _encode(sight))

    def checked(self, server: str) -> Checked:
        """What of this server was found unchanged last."""
        known = self._checked.get(server)
        if known is None:
            known = Checked()
            if self._directory is not None:
                try:
                    known = msgspec.json.decode(self._read(server, ".checked"), type=Checked)
                except (OSError, ValueError, RecursionError):
                    known = Checked()
            self._checked[server] = known
        return known

    def keep_checked(self, server: str, checked: Checked) -> None:
        """Keep this of what is as it was agreed to."""
        if self._checked.get(server) != checked:
            self._checked[server] = checked
            if self._directory is not None:
                self._write(server, ".checked", _encode(checked))

    def _path(self, server: str, suffix: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{hashlib.sha256(server.encode()).hexdigest()[:16]}{suffix}"

    def _read(self, server: str, suffix: str) -> bytes:
        with self._path(server, suffix).open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > LARGEST or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
                raise ValueError("too large, or another user's")
            return file.read()

    def _write(self, server: str, suffix: str, data: bytes) -> None:
        path = self._path(server, suffix)
        draft = path.with_name(f".{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            draft.replace(path)
        except OSError as error:
            with suppress(OSError):  # a disk that takes nothing lets nothing be removed either
                draft.unlink(missing_ok=True)
            if not self._has_complained:
                self._has_complained = True
                log.warning("what servers show cannot be stored", directory=str(path.parent), reason=str(error))
