"""The calls that were sent a moment ago, in memory that outlives the process: the system keeps what is in it.

A row for each call before it is sent would cost more than the call. So its entry is copied into a file that is mapped
into memory, without waiting and without the disk, and gets a row a tenth of a second later with many others (`log.py`).
There are two halves: entries go into one, while the rows for those of the other are written; then that one is empty.
The file is locked for as long as its process lives (`OwnedFile`). What a killed process leaves in one, `recover` reads.
"""

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from struct import Struct as Layout
from typing import TYPE_CHECKING, cast
from uuid import uuid4
from zlib import crc32

from mcpbridge.base.masking.known_values import known_only
from mcpbridge.storage.call_log.format import Redact, SentCall, facts_text, name_text
from mcpbridge.storage.file_locks import OwnedFile, is_owned

if TYPE_CHECKING:
    from sqlite3 import Connection

HALF = 512 * 1024
"""Bytes of entries that wait for their rows at most; they are some 300 each."""
_SUFFIX = ".sent"
_HEAD = Layout("<II")
"""Size and CRC-32 of an entry: one that was not copied to its end is none."""
_NUMBERS = Layout("<dqqQQ32s")
_END = bytes(4)
_FIRST_NAMES = ("method", "server", "tool", "client", "principal", "session", "run", "revision")
"""All that journals of earlier versions have."""
_WHO = ("user_name", "address", "client_version", "oauth_client", "role", "rule")
"""Columns that have no value where nothing is known."""
NAMES = (*_FIRST_NAMES, *_WHO)
"""Columns that are texts, in the order in which `SentCall` has them."""


def packed_names(names: Iterable[str], facts: Mapping[str, object] | None, redact: Redact) -> bytes:
    """Names and facts as an entry has them: without secrets."""
    known = known_only(redact)
    texts: list[str | None] = [name_text(name, known) for name in names]
    return json.dumps([*texts, facts_text(facts, redact) if facts else None]).encode()


class Journal:
    """The entries of one process. Those of its last moments are in the file, whatever ends it but a loss of power."""

    def __init__(self, log: Path) -> None:
        """Make the file beside this call log.

        Raises:
            OSError: it cannot be made.
        """
        import mmap

        if "\0" in str(log):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(log))
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = OwnedFile(log.with_name(f"{log.name}.{uuid4().hex}{_SUFFIX}"))
        try:
            _reserve(self._file.descriptor, 2 * HALF)
            self._memory = mmap.mmap(self._file.descriptor, 2 * HALF)
        except (OSError, ValueError):
            self._file.close()
            raise
        self._begin = self._last = self._end = 0
        self._names: dict[Sequence[str], bytes] = {}
        """Names as entries have them, for a moment."""

    def add(self, call: SentCall, redact: Redact) -> bool:
        """Add an entry, at once. False: there is no room until rows were written."""
        names = self._names.get(call.names) if call.facts is None else packed_names(call.names, call.facts, redact)
        if names is None:
            names = self._names[call.names] = packed_names(call.names, None, redact)
        numbers = call.at, call.uid, call.parent, call.arguments_size, call.asked_size, call.arguments_digest
        entry = _NUMBERS.pack(*numbers) + names
        size, last = len(entry), self._end
        end = last + _HEAD.size + size
        if end + len(_END) > self._begin + HALF:
            return False
        self._memory[last : end + len(_END)] = _HEAD.pack(size, crc32(entry)) + entry + _END
        self._last, self._end = last, end
        return True

    def take_back(self) -> None:
        """Remove the entry that was added last: its call was not sent."""
        self._end = self._last
        self._memory[self._end : self._end + len(_END)] = _END

    def turn(self) -> int:
        """Take entries into the other half from now on, which is empty. Returns which half is to be emptied later."""
        before, self._begin = self._begin, HALF - self._begin
        self._last = self._end = self._begin
        self._names.clear()
        return before

    def empty(self, half: int) -> None:
        """Forget the entries of a half that `turn` returned: all have rows now."""
        self._memory[half : half + len(_END)] = _END

    def close(self) -> None:
        """Remove the file."""
        self._memory.close()
        self._file.close()


Row = Mapping[str, object]
"""The columns of a row in the table `call`, as far as they are known."""


def has_journals(log: Path) -> bool:
    """Whether there are journals beside this call log, which may not exist."""
    return bool(_journals(log))


def _journals(log: Path) -> list[Path]:
    return sorted(log.parent.glob(f"{log.name}.*{_SUFFIX}"))


def left_behind(connection: "Connection", log: Path) -> tuple[list[Row], list[Path]]:
    """Rows for the calls in the journals of processes that are no more and that have none, and these journals.

    The calls are in the order in which they began.
    """
    files = [file for file in _journals(log) if not is_owned(file)]
    found = {row["uid"]: row for file in files for row in _rows_in(file)}
    missing = [row for row in found.values() if not _has_row(connection, row)]
    return sorted(missing, key=lambda row: cast("float", row["at"])), files


def _reserve(descriptor: int, size: int) -> None:
    """Have the room on the disk: to write into memory for which there is none would end the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:  # pragma: no cover - macOS and Windows
        os.write(descriptor, bytes(size))


def _rows_in(file: Path) -> Iterator[Row]:
    try:
        data = file.read_bytes()
    except OSError:
        return
    for half in (0, HALF):
        at = half
        while at + _HEAD.size <= len(data):
            size, checksum = _HEAD.unpack_from(data, at)
            entry = data[at + _HEAD.size : at + _HEAD.size + size]
            if size <= _NUMBERS.size or crc32(entry) != checksum:
                break
            yield _row_of(entry)
            at += _HEAD.size + size


def _row_of(entry: bytes) -> Row:
    begun, uid, parent, size, asked_size, digest = _NUMBERS.unpack_from(entry)
    *names, facts = json.loads(entry[_NUMBERS.size :])
    row: dict[str, object] = {**dict.fromkeys(NAMES), **dict(zip(NAMES, names, strict=False))}
    row |= {column: row[column] or None for column in _WHO}
    row |= {"at": begun, "seconds": 0.0, "uid": uid, "parent": parent or None, "outcome": "interrupted", "error": ""}
    row |= {"arguments_size": size, "arguments_digest": digest, "asked_size": asked_size or None, "facts": facts}
    return row | {"result_size": 0, "result_digest": sha256(b"").digest()}


def _has_row(connection: "Connection", row: Row) -> bool:
    """Its time is exact in both, and has an index."""
    known = row["at"], row["uid"]
    return any(
        connection.execute(f"SELECT 1 FROM {table} WHERE at = ? AND uid = ?", known).fetchone()
        for table in ("call", "running")
    )
