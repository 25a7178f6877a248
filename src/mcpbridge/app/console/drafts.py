"""Changes of servers.toml that a person looks at before they are written, and those that can be undone.

A draft holds the whole text that the file is to have, so comments and order stay. It is written only if the file still
is as it was when the draft was made. Drafts and undos live in memory: a few of them, for as long as the bridge runs.
"""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Literal

import anyio.to_thread
from msgspec import Struct

from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.files.write_file import decoded, read_bytes
from mcpbridge.config.write_servers_toml import Change, prepared, undo, write

_MOST = 50

Line = tuple[Literal["add", "remove", "same", "place"], str]


class Draft(Struct, frozen=True):
    """One change that waits for a yes."""

    id: str
    what: str
    """What it does, in a line."""
    change: Change
    notes: Sequence[str] = ()
    """What a person should know before it is written."""
    prepare: Callable[[], None] = lambda: None
    """What is done right before it is written."""

    @property
    def diff(self) -> list[Line]:
        """The lines that change, with three around them."""
        return diff_lines(self.change.before, self.change.after)


def diff_lines(before: str, after: str) -> list[Line]:
    """A unified diff, line by line, without its head."""
    lines = list(unified_diff(before.splitlines(), after.splitlines(), n=3, lineterm=""))[2:]
    kinds: Mapping[str, Literal["add", "remove", "same", "place"]] = {"+": "add", "-": "remove", "@": "place"}
    return [(kinds.get(line[:1], "same"), line) for line in lines]


class Drafts:
    """The drafts of one console."""

    def __init__(self, console: ConsoleContext) -> None:
        self._console = console
        self._drafts: dict[str, Draft] = {}
        self._written: dict[str, Draft] = {}

    @property
    def path(self) -> Path | None:
        """The configuration file; None: there is none."""
        source = self._console.bridge.settings.source
        return Path(source) if source else None

    async def text(self) -> str:
        """What the file holds now; empty if it is not there."""
        path = self._require_path()

        def read() -> str:
            data = read_bytes(path)
            return decoded(data, path) if data is not None else ""

        return await anyio.to_thread.run_sync(read)

    async def make(
        self,
        what: str,
        edit: Callable[[str], str],
        *,
        notes: Sequence[str] = (),
        prepare: Callable[[], None] = lambda: None,
    ) -> Draft:
        """Prepare a change: it is checked as a whole, and nothing is written.

        `notes`, `prepare`: see `Draft`.

        Raises:
            ConfigError: the file, or what it would come to, is wrong; says in which line.
        """
        change = await anyio.to_thread.run_sync(prepared, self._require_path(), edit, os.environ)
        if change.loaded is None:
            raise ConfigError("nothing would change")
        draft = Draft(secrets.token_urlsafe(12), what, change, notes, prepare)
        _put(self._drafts, draft)
        return draft

    def find(self, id_: str) -> tuple[Draft, bool] | None:
        """A draft, and whether it is written. None: there is none, or not any more."""
        draft = self._written.get(id_)
        if draft is not None:
            return draft, True
        draft = self._drafts.get(id_)
        return (draft, False) if draft is not None else None

    async def write(self, id_: str) -> Draft:
        """Write a draft, and have the bridge take it in.

        Raises:
            ConfigError: there is no such draft; the file was changed meanwhile; it cannot be written.
        """
        draft = self._drafts.pop(id_, None)
        if draft is None:
            raise ConfigError("this change is not there any more: make it again")

        def prepare_and_write() -> None:
            draft.prepare()
            write(draft.change, os.environ)

        await anyio.to_thread.run_sync(prepare_and_write)
        _put(self._written, draft)
        await self._taken_in()
        return draft

    async def undo(self, id_: str) -> Draft:
        """Have the file as it was before a draft was written.

        Raises:
            ConfigError: there is nothing to undo, or the file was changed since.
        """
        draft = self._written.get(id_)
        if draft is None:
            raise ConfigError("there is nothing to undo")
        if await self.text() != draft.change.after:
            raise ConfigError("the file was changed since, so nothing was undone")
        await anyio.to_thread.run_sync(undo, draft.change, os.environ)
        self._written.pop(id_, None)
        await self._taken_in()
        return draft

    async def _taken_in(self) -> None:
        console = self._console
        if console.reload is not None:
            await console.reload(may_be_empty=True)
        console.forget_status()
        console.live.announce("servers", "config", "catalog")

    def _require_path(self) -> Path:
        if self.path is None:
            raise ConfigError("this bridge has no configuration file")
        return self.path


def _put(drafts: dict[str, Draft], draft: Draft) -> None:
    drafts[draft.id] = draft
    while len(drafts) > _MOST:
        del drafts[next(iter(drafts))]
