"""Appends lines to the audit log: takes the chain up where it ends, rotates, removes what is too old, and signs.

All bridges of a user may write one log: each piece of work holds the lock of the folder, and looks first whether
another process has written. A line is in the file, and on the disk if `sync` says so, before the checkpoint is signed
that names it. So a process that is killed leaves a file that ends later than the checkpoint, never earlier. If it ends
earlier, or with half a line, the next line says what is missing (`audit.recovered`), and the old checkpoint is kept: it
is the evidence.

Not for several threads.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mcpbridge.base.errors import ConfigError
from mcpbridge.storage.audit.checkpoints import Anchor, Checkpoint, is_signed, key_id, read_checkpoint, sign
from mcpbridge.storage.audit.lines import NOTHING, RECOVERED, RETENTION, SEGMENT, encode_line, iso_time
from mcpbridge.storage.audit.segments import LOCK, Segment, end_of, open_segment, segment_at, segments_in
from mcpbridge.storage.audit.settings import AuditSettings
from mcpbridge.storage.file_locks import locked

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEEP_SECONDS = 600.0
"""Seconds after which a checkpoint is kept in any case, if there are new lines."""
RETENTION_SECONDS = 3600.0
"""Seconds between two looks at what is too old."""

Entry = tuple[float, str, Mapping[str, Any]]
"""When something happened, its kind, and what else is said of it."""


class Written(Struct, frozen=True):
    """What a piece of work has written, for who sends it on."""

    lines: Sequence[tuple[Entry, bytes]]
    checkpoint: bytes
    """The checkpoint that was kept; empty: none was."""


class Writer:
    """The end of the chain."""

    def __init__(
        self, folder: Path, anchor: Anchor, settings: AuditSettings, clock: Callable[[], float] = time.time
    ) -> None:
        self.folder, self.anchor = folder, anchor
        self.seq = 0
        """The number of the last line."""
        self.anchor_problem = ""
        """Why there are no checkpoints; empty: there are."""
        self._settings, self._clock = settings, clock
        self._hash, self._chain, self._first = NOTHING, "", 1
        self._file: int | None = None
        self._size = 0
        self._day = ""
        self._kept_seq, self._kept_at = 0, clock()
        self._looked_at = 0.0
        self._key: Ed25519PrivateKey | None = None
        self._lines: list[tuple[Entry, bytes]] = []
        self._kept_line = b""
        self._has_taken_up = False

    def append(self, entries: Sequence[Entry], *, is_last: bool = False) -> Written:
        """Write these as lines; `is_last`: nothing follows, so a checkpoint is kept.

        Raises:
            OSError: they cannot be written; none of them was.
        """
        self._lines, self._kept_line = [], b""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self.folder / LOCK):
            try:
                if not self._is_current():
                    self._take_up()
                has_rotated = self._rotate()
                self._remove_old(has_rotated=has_rotated)
                self._write(entries)
                self._sign(is_kept=has_rotated or is_last)
                return Written(self._lines, self._kept_line)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # -- the end of the chain

    def _is_current(self) -> bool:
        """The file is as this process left it."""
        if self._file is None:
            return False
        found = os.fstat(self._file)
        return found.st_size == self._size and found.st_nlink > 0

    def _take_up(self) -> None:
        """Find where the chain ends, in the files and by the checkpoint, and say what is missing."""
        self.close()
        segments = segments_in(self.folder)
        head = self._newest_checkpoint()
        self._seq_and_hash(segments)
        self._chain = next((chain for one in reversed(segments) if (chain := one.chain())), "")
        self._first = segments[0].first if segments else 1
        gap: dict[str, Any] = {}
        if head is not None:
            self._chain = self._chain or head.chain
            self._first = head.first
            if head.seq > self.seq:
                gap["missing"] = {"from": self.seq + 1, "through": head.seq}
                self.seq, self._hash = head.seq, head.hash
            elif head.seq == self.seq and head.hash != self._hash:
                gap["replaced"] = {"from": self.seq, "through": self.seq}
        self._chain = self._chain or token_hex(16)
        if not segments:
            self._begin_segment()
            torn = b""
        else:
            torn = self._open(segments[-1])
            if not self._size:  # killed before its first line
                self._write([(self._clock(), SEGMENT, {"chain": self._chain, "version": 1})])
        if torn:
            self._append_bytes(b"\n")
            gap["torn"] = {"bytes": len(torn), "sha256": sha256(torn).hexdigest()}
        if gap or not self._has_taken_up:
            self._keep_head()
        if gap:
            self._write([(self._clock(), RECOVERED, gap)])
        self._has_taken_up = True

    def _seq_and_hash(self, segments: Sequence[Segment]) -> None:
        self.seq, self._hash = 0, NOTHING
        for segment in reversed(segments):
            line = end_of(segment.path).line
            if line is not None:
                self.seq, self._hash = line.seq, line.hash
                return

    def _newest_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that this key has signed."""
        try:
            public = self._signing_key().public_key()
            for line in (self.anchor.head() or b"", *reversed(self.anchor.all_lines())):
                found = read_checkpoint(line)
                if found is not None and is_signed(found, public):
                    return found.checkpoint
        except (OSError, ConfigError) as error:
            self.anchor_problem = str(error)
        return None

    def _keep_head(self) -> None:
        """The next checkpoint takes the place of this one, which may be the evidence of what was done to the log."""
        try:
            line = (self.anchor.head() or b"").removesuffix(b"\n")
            if line and line not in self.anchor.all_lines():
                self.anchor.keep(line)
        except OSError as error:
            self.anchor_problem = str(error)

    def _open(self, segment: Segment) -> bytes:
        """Go on with a file; returns what follows its last line end."""
        end = end_of(segment.path)
        self._file, self._size = open_segment(segment.path), end.size
        self._day = segment.began()[:10] or self._today()
        return end.torn

    # -- files

    def _today(self) -> str:
        return iso_time(self._clock())[:10]

    def _begin_segment(self) -> None:
        self.close()
        self._file, self._size = open_segment(segment_at(self.folder, self.seq + 1).path), 0
        self._day = self._today()
        self._write([(self._clock(), SEGMENT, {"chain": self._chain, "version": 1})])
        if self._settings.sync:
            with suppress(OSError):  # not every file system has it
                descriptor = os.open(self.folder, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def _rotate(self) -> bool:
        if self._size < self._settings.segment_size and self._day == self._today():
            return False
        self._begin_segment()
        return True

    def _write(self, entries: Sequence[Entry]) -> None:
        seq, last = self.seq, self._hash
        lines: list[tuple[Entry, bytes]] = []
        for entry in entries:
            seq += 1
            line, last = encode_line(seq, last, *entry)
            lines.append((entry, line))
        self._append_bytes(b"".join(line for _, line in lines))
        self.seq, self._hash = seq, last
        self._lines += lines

    def _append_bytes(self, data: bytes) -> None:
        """Append all of it, or nothing."""
        file = self._file
        assert file is not None, "it was opened"
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(file, left) :]
            if self._settings.sync and data:
                getattr(os, "fdatasync", os.fsync)(file)
        except OSError:
            with suppress(OSError):  # else the next line says that this is torn
                os.ftruncate(file, self._size)
            raise
        self._size += len(data)

    # -- retention

    def _remove_old(self, *, has_rotated: bool) -> None:
        """Remove files that are too old or too much. The newest always stays."""
        now = self._clock()
        if now - self._looked_at < RETENTION_SECONDS and not has_rotated:
            return
        self._looked_at = now
        segments = segments_in(self.folder)
        due = self._due(segments, iso_time(now - self._settings.keep))
        if not due:
            return
        first = segments[due].first
        self._write([(now, RETENTION, {"removed": {"from": segments[0].first, "through": first - 1}})])
        before, self._first = self._first, first
        self._sign(is_kept=True)
        if self.anchor_problem:  # without a checkpoint nobody could tell it from lines that were cut
            self._first = before
            return
        with suppress(OSError):
            for segment in segments[:due]:
                segment.path.unlink(missing_ok=True)
            self.anchor.prune(first)

    def _due(self, segments: Sequence[Segment], before: str) -> int:
        """How many of the files go, the oldest first."""
        sizes = [segment.size for segment in segments]
        total, due = sum(sizes), 0
        for size, after in zip(sizes, segments[1:], strict=False):
            if total <= self._settings.max_size and after.began() >= before:
                break
            total -= size
            due += 1
        return due

    # -- checkpoints

    def _signing_key(self) -> "Ed25519PrivateKey":
        if self._key is None:
            self._key = self.anchor.private_key()
        return self._key

    def _sign(self, *, is_kept: bool) -> None:
        """Sign what is written by now."""
        now, new = self._clock(), self.seq - self._kept_seq
        is_due = is_kept or new >= self._settings.checkpoint_every or now - self._kept_at >= KEEP_SECONDS
        try:
            key = self._signing_key()
            point = Checkpoint(self._chain, self.seq, self._hash, self._first, iso_time(now), key_id(key.public_key()))
            line = sign(point, key)
            if new > 0 and is_due:
                self.anchor.keep(line)
                self._kept_seq, self._kept_at, self._kept_line = self.seq, now, line
            self.anchor.replace_head(line)
        except (OSError, ConfigError) as error:
            self.anchor_problem = str(error)
        else:
            self.anchor_problem = ""
