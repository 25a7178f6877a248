"""Keep on disk what clients would be answered first, so that the next of their kind need not wait for a daemon.

One file for each kind of client that came lately: what it declares, and what its `mcpbridge serve` was asked for. The
answers are those that it would get now, made beside requests some time after something changed, and only while every
server is ready, known from earlier, or has failed: a daemon that starts would answer the same. The format, and when a
file counts, are in `stdio_proxy/snapshot.py`.
"""

import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from msgspec import Struct

from mcpbridge.app.stdio_proxy.daemon_lock import make_private
from mcpbridge.app.stdio_proxy.snapshot import (
    LARGEST,
    SUFFIX,
    address,
    digest,
    digest_of_values,
    encode,
    file_name,
    kind_of,
    open_snapshot,
)
from mcpbridge.app.stdio_proxy.start_daemon import SNAPSHOT
from mcpbridge.base.directories import snapshots_path
from mcpbridge.base.log import get_logger
from mcpbridge.catalog.snapshot import Snapshot as CatalogSnapshot
from mcpbridge.config.load import Loaded
from mcpbridge.config.trust.content import code_content, whole_content
from mcpbridge.downstream.client import Client
from mcpbridge.engine.pins.lock_watch import LOCK_NAME
from mcpbridge.library.bridge import Bridge

log = get_logger("mcpbridge.daemon")

MOST_KINDS = 8
"""Kinds of clients that a daemon keeps the answers for; the one that came longest ago goes first."""
MOST_FILES = 32
"""Snapshots of one user, for all configurations and releases; the one not used for longest goes first."""
GATHER_SECONDS = 0.5
"""Seconds to gather what is to be written: servers list in bursts, and clients ask in bursts."""
_AGAIN_SECONDS = 2.0
"""Seconds between two looks whether all servers have settled."""
_LONGEST_DECLARATION = 16 << 10
"""Characters of what a client declares; one that says more gets no snapshot."""
_DRAFT = ".draft"
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-.*)?", re.DOTALL)


class Inputs(Struct, frozen=True):
    """What the configuration was read from."""

    files: Mapping[str, str]
    """By path, the digests of the texts."""
    variables: Collection[str]
    """Names of those that it refers to, also of those that there are not."""
    environ: Mapping[str, str]
    is_found: bool
    """Nobody named the file: a person trusts it."""

    @classmethod
    def of(cls, loaded: Loaded, environ: Mapping[str, str], *, is_found: bool) -> "Inputs":
        """Those of a configuration that was read with this environment. Reads the Python files that it names."""
        named = [match[1] for one in loaded.references if (match := _VARIABLE.fullmatch(one))]
        content = (whole_content if is_found else code_content)(loaded.settings, loaded.content)
        files = {**content, **_lock_of(loaded.settings.source)}
        return cls(files, {*named, *loaded.missing}, environ, is_found)

    @property
    def facts(self) -> dict[str, object]:
        """The members of a file's head that a proxy compares."""
        values = digest_of_values(self.variables, self.environ)
        return {
            "files": dict(self.files),
            "variables": sorted(self.variables),
            "values": values,
            "found": self.is_found,
        }


def _lock_of(source: str | None) -> dict[str, str]:
    """The digest of what servers are held to, by path; empty: it is not there, and must not be."""
    if source is None:
        return {}
    path = Path(source).resolve().parent / LOCK_NAME
    try:
        return {str(path): digest(path.read_bytes())}
    except OSError:
        return {str(path): ""}


class _Kind(Struct, frozen=True):
    """What one kind of clients declares."""

    modern: bool
    version: str
    capabilities: dict[str, Any]
    info: dict[str, Any]
    server: str
    profile: str

    @classmethod
    def of(cls, client: Client) -> "_Kind":
        declared = client.declared_capabilities, client.info
        return cls(client.modern, client.version, *declared, client.view, client.profile_name)

    @property
    def key(self) -> str:
        return kind_of(
            self.version,
            self.capabilities,
            self.info,
            modern=self.modern,
            server=self.server,
            profile=self.profile,
        )

    @property
    def client(self) -> Client:
        """One of the kind, that has asked nothing yet."""
        client = Client(view=self.server, profile_name=self.profile, modern=self.modern, version=self.version)
        client.introduce(self.info)
        return client


class Snapshots:
    """The files of one daemon."""

    def __init__(
        self, bridge: Bridge, key: str, inputs: Callable[[], Inputs | None], listings: Callable[[], str]
    ) -> None:
        """`key`: of the daemon. `inputs`: of the configuration in effect; called in a thread; None: not known.

        `listings`: changes whenever what clients are listed does.
        """
        self._bridge, self._key, self._inputs, self._listings = bridge, key, inputs, listings
        self._folder = Path(snapshots_path(os.environ))
        self._kinds: OrderedDict[str, _Kind] = OrderedDict()
        self._news = anyio.Event()
        self._are_allowed = os.environ.get(SNAPSHOT) != "0"

    @property
    def are_on(self) -> bool:
        """The settings and the environment want them."""
        return self._are_allowed and self._bridge.settings.daemon.snapshot

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Write meanwhile what changes, and at the end what has not been written."""
        server, catalog = self._bridge.server, self._bridge.catalog
        server.on_opening = self._opened
        catalog.on_view_change(lambda _, __: self.changed())
        stop = catalog.on_change(self._catalog_changed)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write_changes)
                yield
                tasks.cancel_scope.cancel()
        finally:
            stop()
            if self._news.is_set() and (work := self._gather()) is not None:
                self._write(work)

    def changed(self) -> None:
        """Clients may be answered otherwise from now on."""
        self._news.set()

    def facts(self) -> dict[str, object] | None:
        """How many there are for this configuration, when one was written and used last; None: they are off."""
        if not self.are_on:
            return None
        found = list(_snapshots_in(self._folder, self._key))
        written = [one.written for one in found]
        used = [one.changed for one in found if one.changed > one.written + _USED_LATER]
        return {
            "kinds": len(found),
            "bytes": sum(one.size for one in found),
            "written_s": round(time.time() - max(written), 1) if written else None,
            "used_s": round(time.time() - max(used), 1) if used else None,
        }

    # -- inside

    def _catalog_changed(self, snapshot: CatalogSnapshot, kinds: frozenset[str]) -> None:
        self.changed()

    def _opened(self, client: Client) -> None:
        """A client has introduced itself."""
        front = client.channel.front if isinstance(client.channel, Client) else client.front
        if front != "stdio" or client.principal or not self.are_on:
            return
        kind = _Kind.of(client)
        if len(repr((kind.capabilities, kind.info))) > _LONGEST_DECLARATION:
            return
        self._kinds[kind.key] = kind
        self._kinds.move_to_end(kind.key)
        if len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)
        self.changed()

    async def _write_changes(self) -> None:
        while True:
            await self._news.wait()
            await anyio.sleep(GATHER_SECONDS)
            if (work := self._gather()) is None:
                await anyio.sleep(_AGAIN_SECONDS)
                continue
            self._news = anyio.Event()
            await anyio.to_thread.run_sync(self._write, work)

    def _gather(self) -> "_Work | None":
        """What is to be on disk now; None: servers are still starting, so it would not last."""
        bridge = self._bridge
        if not self.are_on:
            return _Work("", {})
        bridge.catalog.settle()
        if not bridge.has_settled or not all(one.has_settled for one in bridge.pool.upstreams.values()):
            return None
        listings, answers = self._listings(), dict[str, dict[str, bytes]]()
        for key, kind in self._kinds.items():
            if kind.server and kind.server not in bridge.server.views:
                continue
            if kind.profile and kind.profile not in bridge.server.profiles:
                continue
            of_kind = {
                address(method, cursor): result for method, cursor, result in bridge.server.answers_now(kind.client)
            }
            if of_kind and sum(map(len, of_kind.values())) <= LARGEST:
                answers[key] = of_kind
        return _Work(listings, answers)

    def _write(self, work: "_Work") -> None:
        """Runs in a thread, one at a time. What cannot be written is as good as none."""
        try:
            inputs = self._inputs() if work.answers else None
            if inputs is not None:
                make_private(self._folder)
                for key, answers in work.answers.items():
                    self._write_kind(key, answers, {**inputs.facts, "listings": work.listings})
            self._remove_outdated(work)
        except OSError as error:
            log.warning("snapshots for clients cannot be written", reason=str(error))

    def _write_kind(self, key: str, answers: Mapping[str, bytes], facts: dict[str, object]) -> None:
        place = self._folder / file_name(self._key, key)
        content = digest(encode(facts, answers))
        if self._content_of(place.name) == content:
            return
        kind = self._kinds.get(key)
        about = {} if kind is None else {"client": str(kind.info.get("name", "")), "revision": kind.version}
        draft = place.with_name(f"{place.name}.{secrets.token_hex(4)}{_DRAFT}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(draft, flags, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(encode({**facts, **about, "content": content, "written": time.time()}, answers))
            draft.replace(place)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def _content_of(self, name: str) -> object:
        """A digest of what the file has that is there; None: there is none."""
        snapshot = open_snapshot(str(self._folder), name)
        if snapshot is None:
            return None
        snapshot.close()
        return snapshot.head.get("content")

    def _remove_outdated(self, work: "_Work") -> None:
        """The files of this daemon whose lists are other ones by now, and those beyond the number."""
        for one in _snapshots_in(self._folder, self._key):
            if one.listings != work.listings:
                one.path.unlink(missing_ok=True)
        if not self._folder.is_dir():
            return
        others = sorted(self._folder.glob(f"*{SUFFIX}"), key=_changed_at, reverse=True)
        drafts = [one for one in self._folder.glob(f"*{_DRAFT}") if _changed_at(one) < time.time() - _DRAFT_SECONDS]
        for one in [*others[MOST_FILES:], *drafts]:
            with suppress(OSError):
                one.unlink(missing_ok=True)


class _Work(Struct, frozen=True):
    listings: str
    """Files with other ones go."""
    answers: Mapping[str, Mapping[str, bytes]]
    """By kind, results by address."""


class _Found(Struct, frozen=True):
    path: Path
    listings: str
    written: float
    changed: float
    size: int


_USED_LATER = 0.05
"""Seconds that a file's time must be after its writing, for that to be a use."""
_DRAFT_SECONDS = 3600.0
"""Seconds after which a file that was not renamed is one that a crash left."""


def _snapshots_in(folder: Path, key: str) -> Iterator[_Found]:
    """Those of the daemon of this key."""
    if not folder.is_dir():
        return
    for path in folder.glob(f"{key}-*{SUFFIX}"):
        snapshot = open_snapshot(str(folder), path.name)
        if snapshot is None:
            yield _Found(path, "", 0.0, 0.0, 0)
            continue
        head = snapshot.head
        snapshot.close()
        written = head.get("written")
        with suppress(OSError):
            found = path.stat()
            when = float(written) if isinstance(written, (int, float)) else 0.0
            yield _Found(path, str(head.get("listings", "")), when, found.st_mtime, found.st_size)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
