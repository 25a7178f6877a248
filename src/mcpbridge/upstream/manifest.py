"""What servers offered last, on disk: they are listed before they run.

One file a server, named after the fingerprint of how it is started, so that another command or environment is another
server. The fingerprint is keyed with random bytes that are kept beside the files: neither names nor contents show
anything of a secret. Files are written whole and renamed; one that cannot be read is as good as none. When a server
was seen last is the time of its file, so that seeing it again unchanged writes nothing but that.
"""

import asyncio
import hashlib
import os
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct
from msgspec.structs import replace
from pydantic_core import to_jsonable_python

from mcpbridge.base.log import get_logger
from mcpbridge.upstream.session.asking_history import AskingHistory
from mcpbridge.upstream.settings import ServerSettings

log = get_logger("mcpbridge.manifest")

FORMAT = 1
"""Of the files; those of another one are as good as none."""
LARGEST = 64 * 1024**2
"""Bytes of one file."""
KEPT_SECONDS = 30 * 86400.0
"""Seconds without use after which the file of a server is removed."""
MOST_FILES = 500
"""Beyond these the files that were not used for longest go as well."""
GATHER_SECONDS = 0.5
"""Seconds to gather what is to be written: servers list in bursts."""
_SUFFIX, _DRAFT = ".server", ".draft"
_DRAFT_SECONDS = 3600.0
"""Seconds after which a file that was not renamed is one that a crash left."""
_KEY_FILE, _KEY_BYTES = "key", 32
_ASIDE = b"aside:"
"""Begins the identity of what is no server; those are JSON."""

_IDENTITY = {
    *("command", "args", "env", "inherit_env", "cwd", "project_texts"),
    *("url", "headers", "auth", "tls", "proxy", "transport"),
    *("era", "questions", "roots", "share"),
}
"""The settings on which it depends which server it is, and what it offers to us. As written: with `${PROJECT_ROOT}`."""


class Known(Struct, frozen=True, array_like=True):
    """What one server offered and said of itself when it was up last."""

    lists: dict[str, tuple[bytes, ...]]
    """By kind, each definition as it came."""
    ttl_ms: dict[str, int]
    """Milliseconds that it says its lists stay fresh, by kind; of those that it says it of."""
    modern: bool
    version: str
    """The revision of its session."""
    capabilities: dict[str, Any]
    instructions: str = ""
    title: str = ""
    bears_probe: bool = True
    """False: it ended when it was asked for its era, so that it is opened in the old way at once."""
    asking: dict[str, int] = {}
    """See `AskingHistory.counts`."""


class Memory:
    """What is remembered of one server: `known` now, and `keep` for later."""

    def __init__(
        self, manifest: "Manifest", identity: bytes, entry: "_Entry | None", seen: float, history: AskingHistory
    ) -> None:
        self._manifest, self._identity = manifest, identity
        self.history = history
        """What it was seen to ask of clients; one object for all instances of it."""
        history.keep = self._keep_history
        self.known = entry.known if entry is not None else None
        """None: nothing is."""
        self.changed = entry.changed if entry is not None else 0.0
        """Wall time when the server was first seen like this; 0: never."""
        self.seen = seen
        """Wall time when the server was up last and listed; 0: never."""

    def keep(self, known: Known) -> None:
        """The server was seen like this, now. Returns at once: it is written later."""
        self.seen = time.time()
        entry, before = None, self.known
        if before is None or before != replace(known, asking=before.asking):
            self.changed = self.seen
        known = replace(known, asking=dict(self.history.counts))
        if before != known:
            self.known = known
            entry = _Entry(FORMAT, self.changed, known)
        self._manifest.put(self._identity, entry)

    def _keep_history(self) -> None:
        """It was seen to ask, or not to, while it was up. Before it has listed there is nothing to keep that with."""
        if self.known is not None:
            self.known = replace(self.known, asking=dict(self.history.counts))
            self._manifest.put(self._identity, _Entry(FORMAT, self.changed, self.known))


class _Entry(Struct, frozen=True, array_like=True):
    """What stands in a file, as MessagePack."""

    format: int
    changed: float
    known: Known


class SharedManifest(Protocol):
    """What other bridges of a fleet know. It never fails: it all can be made anew."""

    def known(self, identity: bytes) -> bytes | None:
        """What the server that is started so offered, as it is kept; None: nobody knows."""
        ...

    async def keep(self, entries: Mapping[bytes, bytes | None], /) -> Sequence[bytes]:
        """Others are to know this. None: the server is as it was.

        Returns the identities of such servers that nobody knows any more.
        """
        ...


_decode = msgspec.msgpack.Decoder(_Entry).decode
_encode = msgspec.msgpack.Encoder().encode


class Manifest:
    """The files of one directory. Reading never raises and writing is never waited for: it all can be made anew."""

    def __init__(self, directory: Path) -> None:
        """`directory` is made when there is something to keep."""
        self._directory = directory
        self._key = b""
        self._pending: dict[bytes, _Entry | bytes | None] = {}
        """By identity, what is to be written; None: only that it was seen."""
        self._used: set[bytes] = set()
        self._histories: dict[bytes, AskingHistory] = {}
        self._news = asyncio.Event()
        self._has_complained = False
        self.shared: SharedManifest | None = None
        """What is the same for all bridges of a fleet; None: this one has none."""

    def of(self, name: str, settings: ServerSettings) -> Memory:
        """What is remembered of the server that is started so."""
        identity = identity_of(settings)
        self._used.add(identity)
        pending = self._pending.get(identity)
        is_waiting = isinstance(pending, _Entry)
        entry, seen = (pending, pending.changed) if is_waiting else self._read(name, identity)
        others = self._known_to_others(name, identity)
        if others is not None and (entry is None or others.changed > entry.changed):
            entry, seen = others, others.changed
        history = self._histories.get(identity)
        if history is None:
            history = self._histories[identity] = AskingHistory(
                entry.known.asking if entry is not None else None, learns=True
            )
        return Memory(self, identity, entry, seen, history)

    def history(self, name: str, settings: ServerSettings) -> AskingHistory:
        """What the server that is started so was seen to ask of clients."""
        return self._histories.get(identity_of(settings)) or self.of(name, settings).history

    def fingerprint(self, settings: ServerSettings) -> str:
        """What the file of a server is named after; empty where nothing was ever kept."""
        return self._fingerprint(identity_of(settings))

    def put(self, identity: bytes, entry: _Entry | None) -> None:
        """Have this written soon, if `run` runs. None: it is as it was, and was seen now."""
        if entry is not None or identity not in self._pending:
            self._pending[identity] = entry
        self._news.set()

    def aside(self, key: str) -> bytes:
        """What was put aside under this key; empty if there is nothing, or it cannot be read. For any thread."""
        identity = _ASIDE + key.encode()
        self._used.add(identity)
        waiting = self._pending.get(identity)
        if isinstance(waiting, bytes):
            return waiting
        try:
            return self._bytes_of(identity)[0]
        except (OSError, ValueError):
            return b""

    def put_aside(self, key: str, data: bytes) -> None:
        """Have this written soon as well: what was made of what servers offer, and can be made again."""
        self._pending[_ASIDE + key.encode()] = data
        self._news.set()

    async def run(self) -> None:
        """Write what there is to write, off the event loop, until cancelled; then what is left, before this returns."""
        self._news = asyncio.Event()  # of this loop
        if self._pending:
            self._news.set()
        is_tidy = False
        try:
            while True:
                await self._news.wait()
                await anyio.sleep(GATHER_SECONDS)
                self._news.clear()
                pending = self._take_pending()
                with anyio.CancelScope(shield=True):  # else an end before the thread begins loses what was taken
                    await anyio.to_thread.run_sync(self._write, pending, not is_tidy)
                if (shared := self.shared) is not None:  # it may end meanwhile
                    lacking = await shared.keep(_for_others(pending))
                    if lacking:
                        await shared.keep(await anyio.to_thread.run_sync(self._contents, lacking))
                is_tidy = True
        finally:
            self._write(self._take_pending())

    # -- reading

    def _known_to_others(self, name: str, identity: bytes) -> _Entry | None:
        data = self.shared.known(identity) if self.shared is not None else None
        if data is None:
            return None
        try:
            entry = _decode(data)
        except (ValueError, RecursionError) as error:
            log.debug("what the fleet knows of a server cannot be read", upstream=name, reason=str(error))
            return None
        return entry if entry.format == FORMAT else None

    def _read(self, name: str, identity: bytes) -> tuple[_Entry | None, float]:
        try:
            data, seen = self._bytes_of(identity)
            entry = _decode(data)
            if entry.format != FORMAT:
                raise ValueError(f"of format {entry.format}")
        except FileNotFoundError:
            return None, 0.0
        except (OSError, ValueError, RecursionError) as error:
            log.debug("known lists of a server cannot be read", upstream=name, reason=str(error))
            return None, 0.0
        return entry, seen if seen <= time.time() + 60 else 1.0  # of the future: it tells nothing

    def _bytes_of(self, identity: bytes) -> tuple[bytes, float]:
        """A file and its time. Raises OSError or ValueError: there is none that can be used."""
        fingerprint = self._fingerprint(identity)
        if not fingerprint:
            raise FileNotFoundError
        with (self._directory / f"{fingerprint}{_SUFFIX}").open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > LARGEST or not _is_ours(status):
                raise ValueError("too large, or another user's")
            return file.read(), status.st_mtime

    def _contents(self, identities: Iterable[bytes]) -> dict[bytes, bytes | None]:
        """What the files of these have."""
        found: dict[bytes, bytes | None] = {}
        for identity in identities:
            with suppress(OSError, ValueError):
                found[identity] = self._bytes_of(identity)[0]
        return found

    def _fingerprint(self, identity: bytes) -> str:
        key = self._key = self._key or self._read_key()
        return hashlib.blake2b(identity, digest_size=16, key=key).hexdigest() if key else ""

    def _read_key(self) -> bytes:
        """The key of the fingerprints; empty while nothing was ever kept."""
        try:
            key = (self._directory / _KEY_FILE).read_bytes()
        except OSError:
            return b""
        return key if len(key) == _KEY_BYTES else b""

    # -- writing; in a thread, one at a time

    def _take_pending(self) -> dict[bytes, _Entry | bytes | None]:
        pending, self._pending = self._pending, {}
        return pending

    def _write(self, pending: Mapping[bytes, _Entry | bytes | None], tidy: bool = False) -> None:
        try:
            if pending:
                self._key = self._read_key() or self._make_key()  # as it is now: gone with the directory, perhaps
            for identity, entry in pending.items():
                self._write_one(self._directory / f"{self._fingerprint(identity)}{_SUFFIX}", entry)
            if tidy:
                self._tidy()
        except OSError as error:
            if not self._has_complained:
                self._has_complained = True
                log.debug("lists of servers cannot be stored", directory=str(self._directory), reason=str(error))

    def _make_key(self) -> bytes:
        """The key that counts from now on: this one, unless another process was faster."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / _KEY_FILE
        draft = self._draft(secrets.token_bytes(_KEY_BYTES))
        try:
            os.link(draft, path)
        except FileExistsError:
            if not self._read_key():
                draft.replace(path)  # it is damaged; a whole one is never taken away from those who use it
        finally:
            draft.unlink(missing_ok=True)
        return self._read_key()

    def _write_one(self, path: Path, entry: _Entry | bytes | None) -> None:
        if entry is None:
            with suppress(FileNotFoundError):
                os.utime(path)
            return
        try:
            data = entry if isinstance(entry, bytes) else _encode(entry)
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            data = b""  # a number that MessagePack does not have, or the like
        if not 0 < len(data) <= LARGEST:
            path.unlink(missing_ok=True)
            return
        draft = self._draft(data)
        try:
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def _draft(self, data: bytes) -> Path:
        draft = self._directory / f"{secrets.token_hex(8)}{_DRAFT}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        return draft

    def _tidy(self) -> None:
        """Remove what nobody used for long. Use is the later one of the two times of a file."""
        now, used = time.time(), {f"{self._fingerprint(identity)}{_SUFFIX}" for identity in tuple(self._used)}
        rest: list[tuple[float, str]] = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if entry.name in used:
                    os.utime(entry.path, (now, status.st_mtime))
                elif entry.name.endswith(_SUFFIX):
                    rest.append((max(status.st_atime, status.st_mtime), entry.path))
                elif entry.name.endswith(_DRAFT) and now - status.st_mtime > _DRAFT_SECONDS:
                    Path(entry.path).unlink(missing_ok=True)
        rest.sort(reverse=True)
        room = max(0, MOST_FILES - len(used))
        for number, (used_at, path) in enumerate(rest):
            if number >= room or now - used_at > KEPT_SECONDS:
                Path(path).unlink(missing_ok=True)


def _for_others(pending: Mapping[bytes, _Entry | bytes | None]) -> dict[bytes, bytes | None]:
    """What of this other bridges are to know; not what was put aside, which each makes by itself."""
    found: dict[bytes, bytes | None] = {}
    for identity, entry in pending.items():
        if not identity.startswith(_ASIDE) and not isinstance(entry, bytes):
            with suppress(msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
                found[identity] = None if entry is None else _encode(entry)
    return found


def identity_of(settings: ServerSettings) -> bytes:
    """How the server is started, in one spelling. With its secrets: it goes nowhere but into the fingerprint."""
    names = _IDENTITY | frozenset({"image", "container"} if settings.image is not None else ())
    if settings.may_ask != ServerSettings.model_fields["may_ask"].default:  # else as before there was such a setting
        names |= {"may_ask"}
    # As `model_dump` of these, which would first make a serializer and a validator of all settings of servers.
    described = to_jsonable_python({name: getattr(settings, name) for name in names}, by_alias=False)
    return msgspec.json.encode([FORMAT, described], order="deterministic")


def _is_ours(status: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or status.st_uid == os.getuid()
