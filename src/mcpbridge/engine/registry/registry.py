"""The registry: servers and tools that come, change and go while the bridge runs, over those of the file.

Its entries lie over the configuration file (`overlay.py`), and a change is a reload with other settings, so nothing
else is disturbed. An entry lasts as long as the bridge, is kept in its store, or is written into the file.

Nothing that arrives over HTTP can add or change what runs on this machine (`http_rules.py`): programs, Python code,
files that are read. The same is refused for entries from the store, which others may be able to write to.
"""

import asyncio
import os
import tomllib
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcpbridge.base.background_tasks import repeat
from mcpbridge.base.errors import BridgeError, StoreFailed, ValueTooLarge
from mcpbridge.base.log import get_logger
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.check import Checked
from mcpbridge.config.needs_restart import Reloaded
from mcpbridge.config.schema import Settings
from mcpbridge.config.secrets.providers import Providers
from mcpbridge.config.variables import secret_references
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.engine.registry import rules
from mcpbridge.engine.registry.format import Entry, Key, StoredEntries
from mcpbridge.engine.registry.http_rules import RegistryProblem, Section
from mcpbridge.engine.registry.overlay import NO_OVERLAY, Overlay, entry_status, other_section, section_of, switched
from mcpbridge.engine.registry.rules import private_texts
from mcpbridge.storage.store import Store

log = get_logger("mcpbridge.registry")

_READ_AGAIN = 1.0
"""Seconds until a store is read again that could not be."""

Keep = bool | Literal["file"]
"""How long something lasts: as long as the bridge, in its store (True), or in the configuration file."""


class Apply(Protocol):
    """Puts settings into effect: what `over` makes of those of the file, as `rebase` has these from then on."""

    async def __call__(self, over: Callable[[Settings], Settings], rebase: Callable[[Settings], Settings]) -> Reloaded:
        """What that changed."""
        ...


class Registry:
    """What was said of one bridge's servers and tools. Its methods run on the event loop; changes wait for one another.

    A change continues to its end, whatever becomes of who asked for it. One that fails changes nothing.
    """

    def __init__(
        self,
        store: Store,
        base: Callable[[], Settings],
        apply: Apply,
        redact: Callable[[str], str],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None] | None],
        *,
        is_whole: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`base`: the settings that lie below; `spawn` starts a task that somebody owns.

        `store` (`LazyStore.shared`): its methods fail while it is away, and what is said then is refused, not lost.

        `is_whole`: these settings have all servers; else nothing is added to them that was kept of earlier runs.
        """
        self._base, self._apply, self._redact = base, apply, redact
        self._stored = StoredEntries(store, lambda: _owner(base()))
        self._spawn, self._is_whole = spawn, is_whole
        self._environ = environ if environ is not None else os.environ
        self._now = NO_OVERLAY
        self._lock = asyncio.Lock()
        self.check_edit: Callable[[str], object] = lambda text: None
        """Called in a thread with the text of the file before it is edited; raises if nobody has trusted that text, so
        that a switch does not put into effect what somebody else wrote."""
        self.on_kept: Callable[[], object] = lambda: None
        """Called when what is kept in the store has changed."""
        self.loaded = asyncio.Event()
        """Set once it is known what was kept of earlier runs, or that it cannot be read now."""
        self._reading: asyncio.Task[None] | None = None
        self._is_stale = self._is_unread = False
        """What is kept may be different by now; it could not be read the last time."""
        self._undeleted: dict[Key, Entry] = {}
        """What is in the file by now, and still in the store."""
        self._is_unsure = False
        """A change may have been kept though that was not answered: others have not heard of it."""

    @property
    def entries(self) -> Mapping[Key, Entry]:
        """All that was said and lies over the file."""
        return self._now.entries

    @property
    def below(self) -> Settings:
        """The settings that lie below the entries: those of the file."""
        return self._base()

    def over(self, base: Settings) -> Settings:
        """These settings with all entries over them."""
        return self._now.over(base)

    def status(self) -> list[dict[str, Any]]:
        """What was said, as JSON values, by section and name; no tables, which may hold secrets."""
        base = self._base()
        return [entry_status(entry, base) for _, entry in sorted(self._now.entries.items())]

    # -- what was kept

    async def load(self) -> None:
        """Take what was kept by earlier runs, and put it into effect; what cannot be is left out, and logged.

        Where the store cannot be read, that is done as soon as it can be.
        """
        try:
            is_read = await self._read_stored()
        finally:
            self.loaded.set()
        if not is_read:
            self.read_again()

    def read_again(self) -> None:
        """Take what another bridge of the fleet has kept, changed or taken out since: as soon as it can be read.

        Until then all stays as it is known here. Returns at once.
        """
        self._is_stale = True
        if self._reading is None or self._reading.done():
            self._reading = self._spawn(repeat(_READ_AGAIN, self._read_while_stale, at_once=True))

    async def _read_while_stale(self) -> bool:
        """False: the store could not be read."""
        while self._is_stale:
            self._is_stale = False
            try:
                is_read = await self._read_stored()
            except BaseException:
                self._is_stale = True
                raise
            if not is_read:
                self._is_stale = True
                return False
        return True

    async def _read_stored(self) -> bool:
        try:
            async with self._lock:
                for key, former in list(self._undeleted.items()):
                    await self._stored.change(former, None)
                    del self._undeleted[key]
                    self._is_unsure = True  # others may have read it after they were told
                was_lost = self._base().fleet.listen is not None and await self._stored.restore(
                    [entry for entry in self._now.entries.values() if entry.is_stored]
                )
                entries = [entry for data in await self._stored.all() if (entry := self._parsed(data)) is not None]
                await self._begin_with(entries)
        except StoreFailed as error:
            if not self._is_unread:
                log.error("servers and tools added at run time cannot be read; they are as before", reason=str(error))
            self._is_unread = True
            return False
        self._is_unread = False
        if was_lost:
            log.warning("the store has lost what was added at run time; what this bridge knows of it is there again")
        if was_lost or self._is_unsure:
            self._is_unsure = False
            self.on_kept()
        return True

    def _parsed(self, data: bytes) -> tuple[Entry, OfferSettings | None] | None:
        try:
            entry = msgspec.json.decode(data, type=Entry)
            if not self._is_whole and entry.name not in section_of(self._base(), entry.section):
                return None
            rules.refuse_keeping(self._base(), entry)
            parsed = self._read(entry.section, entry.name, entry.table) if entry.table is not None else None
        except (msgspec.DecodeError, BridgeError) as error:
            log.error("a server or tool added at run time is left out", reason=self._redact(str(error)))
            return None
        return replace(entry, is_stored=True), parsed

    async def _begin_with(self, entries: list[tuple[Entry, OfferSettings | None]]) -> None:
        own = NO_OVERLAY
        for key, entry in self._now.entries.items():
            if not entry.is_stored:
                own = own.having(entry, self._now.parsed.get(key))
        together = own
        entries = [one for one in entries if (other_section(one[0].section), one[0].name) not in _keys_of(entries)]
        for entry, parsed in entries:
            together = together.having(entry, parsed)
        if together.entries == self._now.entries:
            return
        with suppress(BridgeError):
            await self._effect(together)
            return
        await self._effect(own)
        for entry, parsed in entries:  # one of them spoils it for the others
            try:
                await self._effect(self._now.having(entry, parsed))
            except BridgeError as error:
                reason = self._redact(str(error))
                log.error("a server or tool added at run time is left out", name=entry.name, reason=reason)

    # -- changing

    async def put(
        self,
        section: Section,
        name: str,
        table: Mapping[str, Any],
        *,
        may_replace: bool = False,
        by: str = "library",
        keep: Keep = False,
    ) -> Reloaded:
        """Add a server or tool, or put it in the place of one.

        Raises:
            ConfigError: the table is wrong, or the file cannot be written.
            RegistryProblem: `exists`; `forbidden`: what runs here, or reads here, cannot be kept in the store.
            StoreFailed: it cannot be kept.
        """

        async def putting() -> Reloaded:
            if not may_replace and self._is_known(section, name):
                raise RegistryProblem("exists", f"there is a {rules.noun(section)} {name[:100]!r} already")
            plain = rules.plain(table)
            rules.refuse_clash(self._base(), self.over(self._base()), section, name)
            parsed = await self._with_secrets(section, name, plain)
            entry = Entry(section, name, table=plain, by=by, at=_now(), is_stored=keep is True)
            if keep == "file":
                from mcpbridge.config.edit_servers_toml import put_table

                done = await self._write(entry, lambda text: put_table(text, section, name, plain, may_replace=True))
            else:
                done = await self._set(entry, parsed)
            if isinstance(self._redact, Redactor):
                self._redact.learn(f"{section}/{name}", private_texts(plain))
            return done

        return await self._alone(putting())

    async def remove(self, section: Section, name: str, *, by: str = "library", keep: Keep = False) -> Reloaded:
        """Take a server or tool out.

        Raises:
            RegistryProblem: `unknown`. ConfigError: the file cannot be written. StoreFailed: it cannot be kept.
        """

        async def removing() -> Reloaded:
            self.require(section, name)
            is_written = name in section_of(self._base(), section)
            before = self._now.entries.get((section, name))
            if keep == "file" and is_written:
                from mcpbridge.config.edit_servers_toml import remove_table

                return await self._write(Entry(section, name, by=by), lambda text: remove_table(text, section, name))
            is_stored = keep is not False or (before is not None and before.is_stored)
            return await self._set(
                Entry(section, name, removed=is_written, by=by, at=_now(), is_stored=is_stored), None
            )

        return await self._alone(removing())

    async def switch(
        self, section: Section, name: str, *, on: bool, tool: str = "", by: str = "library", keep: Keep = False
    ) -> Reloaded:
        """Switch a server or tool on or off; `tool`: only this one of its tools, by the server's own name.

        What was taken out of what the file has is put back by switching it on.

        Raises:
            RegistryProblem: `unknown`. ConfigError: the file cannot be written. StoreFailed: it cannot be kept.
        """

        async def switching() -> Reloaded:
            before = self._now.entries.get((section, name), Entry(section, name))
            if before.removed and on and not tool and keep != "file":
                return await self._set(Entry(section, name, by=by, is_stored=before.is_stored), None)
            self.require(section, name)
            parsed = self._now.parsed.get(before.key)
            if keep == "file":
                from mcpbridge.config.edit_servers_toml import switch

                if parsed is not None:
                    raise RegistryProblem("invalid", f"{name!r} is not in the configuration file")
                return await self._write(before, lambda text: switch(text, section, name, on=on, tool=tool))
            below = parsed or section_of(self._base(), section).get(name)
            said = switched(before, below, on=on, tool=tool)
            return await self._set(replace(said, by=by, at=_now(), is_stored=keep or before.is_stored), parsed)

        return await self._alone(switching())

    async def _alone(self, work: Coroutine[Any, Any, Reloaded]) -> Reloaded:
        """Do it after all others, to its end: who asked may be gone before."""
        done: asyncio.Future[Reloaded] = asyncio.get_running_loop().create_future()

        async def do() -> None:
            try:
                async with self._lock:
                    found = await work
            except BaseException as error:
                if isinstance(error, Exception) and not done.done():
                    done.set_exception(error)
                    return
                done.cancel()
                if not isinstance(error, Exception):
                    raise
            else:
                if not done.done():
                    done.set_result(found)
            finally:
                work.close()  # it may not have begun

        if self._spawn(do()) is None:
            work.close()
            raise RegistryProblem("invalid", "the bridge does not run")
        return await done

    async def _set(self, entry: Entry, parsed: OfferSettings | None) -> Reloaded:
        """Have an entry in effect. What cannot be kept is not put into effect, and the other way round."""
        if not entry.is_stored and self._base().fleet.listen is not None:
            with suppress(RegistryProblem):  # what runs here is for this bridge alone
                rules.refuse_keeping(self._base(), entry)
                entry = replace(entry, is_stored=True)
        if entry.is_stored:
            rules.refuse_keeping(self._base(), entry)
        before, after = self._now, self._now.having(entry, parsed)
        try:
            await self._stored.change(before.entries.get(entry.key), after.entries.get(entry.key))
        except ValueTooLarge:
            raise
        except StoreFailed:
            self._is_unsure = True  # it may have been kept all the same: then it takes effect once it can be read
            self.read_again()
            raise
        self._undeleted.pop(entry.key, None)
        try:
            done = await self._effect(after)
        except Exception:
            with suppress(StoreFailed):
                await self._stored.change(after.entries.get(entry.key), before.entries.get(entry.key))
            raise
        log.info("registry changed", section=entry.section, name=entry.name, by=entry.by)
        self._announce(before.entries.get(entry.key), entry)
        return done

    def _announce(self, before: Entry | None, after: Entry | None) -> None:
        if any(entry is not None and entry.is_stored for entry in (before, after)):
            self.on_kept()

    async def _effect(self, after: Overlay, rebase: Callable[[Settings], Settings] = lambda base: base) -> Reloaded:
        done = await self._apply(after.over, rebase)
        self._now = after
        return done

    async def _write(self, entry: Entry, edit: Callable[[str], str]) -> Reloaded:
        """Have the file changed, and in effect what it then has under this name; what lay over that goes."""
        from mcpbridge.config import write_servers_toml as configuration

        source = self._base().source
        if not source:
            raise RegistryProblem("invalid", "there is no configuration file to write to")
        change = await anyio.to_thread.run_sync(configuration.prepared, Path(source), edit, self._environ)
        await anyio.to_thread.run_sync(self.check_edit, change.before)
        loaded = change.loaded
        if loaded is not None:
            if isinstance(self._redact, Redactor):
                self._redact.know(loaded.secrets)
            await anyio.to_thread.run_sync(configuration.write, change, self._environ)

        written = section_of(loaded.settings, entry.section).get(entry.name) if loaded is not None else None
        if loaded is not None and written is not None and loaded.is_deferred:
            table: dict[str, Any] = tomllib.loads(loaded.text)[entry.section].get(entry.name, {})
            written = await self._with_secrets(entry.section, entry.name, table) if table else written

        def rebase(base: Settings) -> Settings:
            if loaded is None:
                return base
            tables = dict(section_of(base, entry.section))
            tables.pop(entry.name, None)
            if written is not None:
                tables[entry.name] = written
            return base.model_copy(update={entry.section: tables})

        before, after = self._now, self._now.having(Entry(entry.section, entry.name), None)
        try:
            done = await self._effect(after, rebase)
        except Exception:
            if loaded is not None:
                await anyio.to_thread.run_sync(configuration.undo, change, self._environ)
            raise
        try:
            await self._stored.change(before.entries.get(entry.key), None)
        except StoreFailed as error:
            log.error(
                "run-time changes that the file now contains cannot be deleted yet", name=entry.name, reason=str(error)
            )
            self._undeleted[entry.key] = before.entries[entry.key]
            self.read_again()
        log.info("configuration file changed", section=entry.section, name=entry.name, by=entry.by)
        self._announce(before.entries.get(entry.key), None)
        return done

    def _read(self, section: Section, name: str, table: dict[str, Any]) -> OfferSettings:
        """The settings of a table, variables filled in, as if it stood in the file."""
        rules.refuse_clash(self._base(), self.over(self._base()), section, name)
        return self._known(section, name, rules.read(self._base(), section, name, table, self._environ))

    async def _with_secrets(self, section: Section, name: str, table: dict[str, Any]) -> OfferSettings:
        """The same with the secrets that it refers to, which are fetched beside the loop."""
        if not any(secret_references(table)):
            return self._known(section, name, rules.read(self._base(), section, name, table, self._environ))
        providers = Providers(self._environ)
        reading = partial(rules.read, self._base(), section, name, table, self._environ, providers=providers)
        return self._known(section, name, await anyio.to_thread.run_sync(reading))

    def _known(self, section: Section, name: str, checked: Checked) -> OfferSettings:
        if isinstance(self._redact, Redactor):
            self._redact.learn(f"{section}/{name}", checked.secrets)
        return section_of(checked.settings, section)[name]

    # -- looking, and refusing

    def owner(self, section: Section, name: str, tool: str = "") -> tuple[Section, str, str]:
        """Whose setting it is to switch what a name means: section, name, and the single tool of it if it is one.

        `NAME` or `tools/NAME` is a table of the section; `server/tool` a tool of a server, or of one of `[tools]`.

        Raises:
            RegistryProblem: `unknown`.
        """
        gone = self._now.entries.get((section, name))
        if gone is not None and gone.removed and not tool:
            return section, name, tool
        return rules.owner(self.over(self._base()), section, name, tool)

    def require(self, section: Section, name: str) -> OfferSettings:
        """What is set of a server or tool, as it is in effect.

        Raises:
            RegistryProblem: `unknown`.
        """
        return rules.require(self.over(self._base()), section, name)

    def refuse_local(self, section: Section, name: str, *, removes: bool = False) -> None:
        """Refuse to change, or take out of the file, over HTTP what the user's configuration runs, or reads, here.

        Raises:
            RegistryProblem: it does.
        """
        rules.refuse_local(self._base(), section, name, removes=removes)

    def refuse_switching_on(self, section: Section, name: str, tool: str) -> None:
        """Refuse to switch on over HTTP what the user's own file switches off.

        Raises:
            RegistryProblem: it does.
        """
        rules.refuse_switching_on(self._base(), section, name, tool)

    def _is_known(self, section: Section, name: str) -> bool:
        return name in section_of(self.over(self._base()), section)


def _owner(base: Settings) -> str:
    """The configuration whose entries they are; bridges of a fleet have one, wherever their files are."""
    return "config of the fleet" if base.fleet.listen is not None else f"config:{base.source or ''}"


def _keys_of(entries: list[tuple[Entry, OfferSettings | None]]) -> set[Key]:
    return {entry.key for entry, _ in entries if entry.table is not None}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
