"""Follow the configuration file while the bridge runs: read it again when it was edited, and put it into effect.

A broken edit changes nothing: the bridge continues with what it has, says so once in the log, and shows it in the
status until the file is right again. Reloads happen one after the other, whoever asks for them.

The file is looked at once a second, which costs a `stat` and needs nothing installed; the ways in which systems
report changes do not see edits on network file systems and in mounted folders, which is where many keep their
configuration. Editors write in several steps, or put a new file in the place of the old one, so an edit is read once
the file has been still for a moment; a file that is gone for that moment changes nothing.

Secrets that the file refers to (`${cmd:…}` and its like) are fetched again when they are old, when a server refuses
what it got, and on `mcpbridge reload`. Another value is a change like an edit.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec.structs import replace

from mcpbridge.base.errors import ConfigError, UpstreamUnavailable
from mcpbridge.base.log import Level, get_logger
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded, only_server, read, with_secrets
from mcpbridge.config.schema import Settings
from mcpbridge.config.secrets.providers import Providers
from mcpbridge.config.trust.content import Content, place_of, whole_content
from mcpbridge.config.trust.decisions import NotTrusted, TrustStore
from mcpbridge.library.bridge import Bridge

log = get_logger("mcpbridge.reload")

POLL_SECONDS = 1.0
"""Seconds between two looks at the file."""
DEBOUNCE_SECONDS = 0.3
"""Seconds for which an edited file must be as it is before it is read."""
REFUSED_AGAIN = 30.0
"""Seconds between two times that secrets are fetched since a server refused one."""
_GONE = 5.0
"""Looks (of the interval) for which a file may be gone before that counts as a broken edit."""
_FRESH = 10.0
"""Seconds before the start within which an edit may have been missed."""
_FILE = re.compile(r"(?<!\$)\$\{file:([^}]*)\}")
_LARGEST = 4 * 1024**2

_Stamp = tuple[tuple[int, ...] | None, ...]
"""Of each file that is looked at, when its text and its rights changed last, size and inode; None: it is not there."""


class Reloading:
    """Reloads one bridge from its file."""

    def __init__(
        self,
        bridge: Bridge,
        path: Path,
        *,
        redact: Redactor,
        environ: Mapping[str, str] = os.environ,
        view: str = "",
        log_level: Level | None = None,
        warnings: Iterable[str] = (),
        missing: frozenset[str] = frozenset(),
        trust: TrustStore | None = None,
        providers: Providers | None = None,
        trusted: Content | None = None,
    ) -> None:
        """`redact` learns the secrets that an edit brings. `environ`: what variables stand for.

        `view`: the one server that is served alone. `log_level`: given on the command line, so the file's never counts.
        `warnings`: those of the file, reported at the start; they are not logged again. `missing`: see `Loaded`.
        `trust`: nobody named the file, so an edit waits until a person trusts it here. `providers`: what fetched the
        secrets that the file refers to. `trusted`: all that a person said yes to (`Loaded.trusted`).
        """
        self._bridge, self._path, self._redact = bridge, path, redact
        if trust is not None:
            bridge.registry.check_edit = self.check_edit
        self._environ, self._view, self._trust = environ, view, trust
        self._log_level: Level | None = log_level
        self._providers = providers or Providers(environ)
        self._refused = self._fetched_at = 0.0
        """When a server last refused its credentials, and when secrets were fetched for that, on `time.monotonic`."""
        self._trusted: Content = trusted or {}
        self._covered = sorted(self._trusted)
        """Files that count beside the configuration, where it has to be trusted."""
        self._more: dict[str, str] = {}
        self._lock = asyncio.Lock()
        self._changed: dict[str, object] = {}
        """What the last reading that changed anything did, and when."""
        self._warnings = frozenset(warnings)
        self.missing = missing
        """Variables that the file names, as it is in effect, and that there are not."""
        self.loaded: Loaded | None = None
        """What was read and put into effect last; None: still what the process began with."""
        self.on_reload: Callable[[], object] = lambda: None
        """Called whenever the file was read and put into effect."""
        self._beside: tuple[Path, ...] = _files_named_in(path)
        now = self._look()
        # One that was written just now may have been read before that.
        is_fresh = now[0] is not None and now[0][0] > (time.time() - _FRESH) * 1e9
        self._seen: _Stamp = () if is_fresh else now

    async def reload(
        self, more_environ: Mapping[str, str] | None = None, *, may_be_empty: bool = False, anew: bool = False
    ) -> dict[str, object]:
        """Read the file and put it into effect; returns what came of it, as JSON values.

        `ok` says whether the file is in effect now. If it is: `added`, `removed`, `replaced`, `kept` (servers),
        `sections`, `needs_restart`, `warnings`, each left out where it is empty; else `config_error` as in the status.
        If nothing changed, `before` is what the last reading that did so changed, and when (`at`).

        `may_be_empty`: somebody took the last server out on purpose. Else an empty file counts as a broken edit: it is
        what a full disk and some editors leave.

        `anew`: secrets that the file refers to are fetched again, whatever their age.

        `more_environ`: variables for what the file names and `environ` does not have, from now on.
        """
        async with self._lock:
            self._more |= more_environ or {}
            try:
                if anew and self._providers.has_any:
                    await self._fetch(everything=True)
                loaded = await anyio.to_thread.run_sync(partial(self._read, may_be_empty=may_be_empty))
                self._redact.know(loaded.secrets)
                before = self._bridge.settings
                done = await self._bridge.reload(loaded.settings)
            except ConfigError as error:
                return {"ok": False, "config_error": self._failed(error)}
            self._settle(before, loaded)
            told: dict[str, object] = {**done.to_json()}
            if done:
                now = datetime.now(UTC).isoformat(timespec="seconds")
                self._changed = {"at": now, **{key: names for key, names in told.items() if key != "needs_restart"}}
                log.info("configuration reloaded", **told)
            elif done.needs_restart:
                log.info("configuration read; restart to apply the changes", needs_restart=list(done.needs_restart))
            if not done and self._changed:
                told["before"] = self._changed
            return {"ok": True, **told, **({"warnings": list(loaded.warnings)} if loaded.warnings else {})}

    @asynccontextmanager
    async def watching(
        self, *, interval: float = POLL_SECONDS, debounce: float = DEBOUNCE_SECONDS
    ) -> AsyncGenerator[None]:
        """Reload meanwhile whenever the file was edited, unless `daemon.watch` is off.

        Both in seconds: how often the file is read, and for how long it must be as it is before it is read.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, interval, debounce)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    @property
    def environ(self) -> dict[str, str]:
        """What variables in the file stand for."""
        return {**self._more, **self._environ}

    def check_before_start(self, server: str) -> None:
        """Refuse to start a program of which a file changed since a person trusted it.

        Between this and the start of the program is a moment in which a file could still be replaced.

        Raises:
            UpstreamUnavailable: one did; names it.
        """
        settings = self._bridge.settings.servers.get(server)
        if self._trust is None or settings is None:
            return
        from mcpbridge.config.trust.named_files import files_of_server  # where a configuration was trusted

        for path, digest in files_of_server(settings, self._path.absolute().parent).items():
            if self._trusted.get(path) != digest:
                what = f"{path} changed since it was trusted, so it is not started: run `mcpbridge trust {self._path}`"
                raise UpstreamUnavailable(server, what)

    def check_edit(self, text: str) -> None:
        """Refuse to edit this text of the file, and to put a part of it into effect, if nobody has trusted it.

        Raises:
            NotTrusted: nobody has.
            ConfigError: it is wrong.
        """
        if self._trust is not None:
            loaded = read(self._path, self.environ, text=text)
            self._require_trust(whole_content(loaded.judged, loaded.content))

    # -- reading

    def _require_trust(self, content: Content) -> None:
        assert self._trust is not None, "nobody named the file"
        if not self._trust.trusts(self._path, content):
            raise NotTrusted(place_of(self._path), self._trust.why_not(self._path, content))

    def _read(self, *, may_be_empty: bool) -> Loaded:
        self._beside = _files_named_in(self._path)
        self._seen = self._look()  # first: what changes from here on is another edit
        loaded = read(self._path, self.environ, providers=self._providers if self._trust is None else None)
        if loaded.is_empty and not may_be_empty and _has_any(self._bridge.settings):
            what = "it is empty, which would take every server and tool away"
            hint = "`mcpbridge remove NAME` takes one out; `mcpbridge restart` begins with the file as it is."
            raise ConfigError(what, file=str(self._path), hint=hint)
        if self._trust is not None:
            content = whole_content(loaded.judged, loaded.content)
            self._covered = sorted(content)
            self._require_trust(content)
            loaded = replace(with_secrets(loaded, self.environ, self._providers), trusted=content)
        if not self._view:
            return loaded
        return replace(loaded, settings=only_server(loaded.settings, self._view))

    def _failed(self, error: ConfigError) -> dict[str, str]:
        """Keep for the status what is wrong, and log it once."""
        told = {"message": self._redact(str(error))}
        known = self._bridge.config_error
        if known is not None and known["message"] == told["message"]:
            return dict(known)
        where, _, line = (error.file or str(self._path)).partition(f"{self._path.name}:")
        told["file"] = f"{where}{self._path.name}" if line else where
        if line:
            told["line"] = line.partition(":")[0]
        told["at"] = datetime.now(UTC).isoformat(timespec="seconds")
        self._bridge.config_error = told
        self._bridge.history.note("config.refused", {"detail": told["message"], "file": told["file"]})
        log.error("the configuration has an error; the previous one stays in effect", reason=told["message"])
        return told

    def _settle(self, before: Settings, loaded: Loaded) -> None:
        """What concerns this process beside the bridge."""
        self.loaded, self._trusted = loaded, loaded.trusted
        if self._bridge.config_error is not None:
            self._bridge.config_error = None
            log.info("the configuration is valid again")
        if loaded.settings.log != before.log:
            from mcpbridge.app.logging_setup import set_up_logs

            set_up_logs(loaded.settings.log, self._redact, level=self._log_level)
        for note in loaded.warnings:
            if note not in self._warnings:
                log.warning("configuration", note=note)
        self._warnings, self.missing = frozenset(loaded.warnings), loaded.missing
        self.on_reload()

    # -- watching

    async def _watch(self, interval: float, debounce: float) -> None:
        gone_since = 0.0
        clock = asyncio.get_running_loop().time
        while True:
            await anyio.sleep(interval)
            if not self._bridge.settings.daemon.watch:
                continue
            await self._follow_secrets()
            if self._look() == self._seen:
                continue
            stamp = await self._come_to_rest(debounce)
            gone_since = 0.0 if stamp[0] is not None else gone_since or clock()
            is_away = gone_since and clock() - gone_since < _GONE * interval
            if stamp == self._seen or is_away:
                continue
            try:
                await self.reload()
            except Exception as error:
                # Whatever is wrong with an edit, the bridge that runs must not end by it.
                log.error("the configuration cannot be reloaded", exc_info=error)

    async def _follow_secrets(self) -> None:
        """Fetch again what is old, or what a server refused; another value is put into effect."""
        if not self._providers.has_any:
            return
        refused = max((one.connection.refused_at for one in self._bridge.pool.everyone()), default=0.0)
        is_refused = refused > self._refused and time.monotonic() - self._fetched_at >= REFUSED_AGAIN
        if not (is_refused or self._providers.is_due):
            return
        try:
            async with self._lock:
                if is_refused:
                    self._refused, self._fetched_at = refused, time.monotonic()
                has_changed = await self._fetch(everything=is_refused)
            if has_changed:
                await self.reload()
        except Exception as error:
            log.error("secrets cannot be fetched again", exc_info=error)

    async def _fetch(self, *, everything: bool) -> bool:
        """Fetch secrets again. Says whether one is another now."""
        has_changed = await anyio.to_thread.run_sync(partial(self._providers.refresh, everything=everything))
        for problem in self._providers.problems:
            log.warning("a secret cannot be fetched again; its old value stays in use", reason=problem)
        return has_changed

    async def _come_to_rest(self, debounce: float) -> _Stamp:
        """How the file is once it has been the same for so many seconds."""
        stamp = self._look()
        while True:
            await anyio.sleep(debounce)
            before, stamp = stamp, self._look()
            if stamp == before:
                return stamp

    def _look(self) -> _Stamp:
        """How the file is now, what it takes values from (`${file:PATH}`, our own secrets), and what is trusted."""
        trust = () if self._trust is None else (self._trust.path, *map(Path, self._covered))
        return tuple(_stamp(path) for path in (self._path, *self._beside, *trust, *self._own_secrets()))

    def _own_secrets(self) -> tuple[Path, ...]:
        """The file of `mcpbridge secret`, if any secrets are referred to: most configurations need not load this."""
        if not self._providers.has_any:
            return ()
        from mcpbridge.storage.named_secrets import secrets_file

        return (secrets_file(self._environ),)


def _has_any(settings: Settings) -> bool:
    return bool(settings.servers or settings.tools or settings.packs or settings.builtin.enable)


def _files_named_in(path: Path) -> tuple[Path, ...]:
    """The files whose text stands in the place of `${file:PATH}`; none where the configuration cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST).decode(errors="replace")
    except OSError:
        return ()
    found: list[Path] = []
    for name in dict.fromkeys(_FILE.findall(text)):
        with suppress(RuntimeError):  # `~nobody`
            found.append(path.absolute().parent / Path(name).expanduser())
    return tuple(found)


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
