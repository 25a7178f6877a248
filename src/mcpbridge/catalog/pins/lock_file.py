"""`servers.lock`: what people agreed to of each server, as a file that is reviewed.

One line a definition, sorted: its digests and what it says of itself, so that a diff shows what is new. A name has
several digests where users, clients or platforms see different definitions. The definitions themselves are beside it,
in `servers.lock.d/`, each in a file named after its digest. Reading checks everything: a lock that is not understood
agrees to nothing. Who may write it, and when, is for the commands to decide.
"""

import os
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import cast

import msgspec

from mcpbridge.base.errors import ConfigError
from mcpbridge.catalog.pins.definition import FACTS, PIN_KINDS, Pin, PinKind, summary_of
from mcpbridge.protocol.canonical_json import canonical

LOCK_NAME = "servers.lock"
"""The name of the file; it is beside the configuration."""
FORMAT = 1
"""Of the file."""
LARGEST = 64 * 1024**2
"""Bytes of the file, and of one definition."""

_HEADER = "# What was agreed to of each server. Written by `mcpbridge lock`; see `mcpbridge lock diff`."
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LINE = re.compile(r"\(at line (\d+)")
_ADVICE = "Restore it from version control, or write it anew with `mcpbridge lock --anew` and review the difference."


@dataclass(frozen=True, slots=True, order=True)
class PinKey:
    """What a line of the lock is about."""

    server: str
    kind: PinKind
    name: str
    """As the server knows it."""


@dataclass(frozen=True, slots=True)
class Agreed:
    """What was agreed to under one name."""

    digests: tuple[str, ...]
    """Sorted; each of these definitions is fine."""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Lock:
    """What was agreed to of all servers."""

    entries: Mapping[PinKey, Agreed]

    @property
    def servers(self) -> frozenset[str]:
        """The servers of which anything was agreed to."""
        return frozenset(key.server for key in self.entries)

    @property
    def digests(self) -> frozenset[str]:
        """Those of all definitions that were agreed to."""
        return frozenset(digest for entry in self.entries.values() for digest in entry.digests)


def agreed(definitions: Iterable[bytes]) -> Agreed:
    """The line for one name whose definitions, each in its one spelling, are these."""
    by_digest = {sha256(definition).hexdigest(): definition for definition in definitions}
    digests = tuple(sorted(by_digest))
    return Agreed(digests, summary_of(by_digest[digests[0]]) if digests else "")


def lock_of(pins: Mapping[str, Iterable[Pin]]) -> Lock:
    """The lock that agrees to these pins, by server."""
    found: dict[PinKey, list[bytes]] = {}
    for server, its in pins.items():
        for one in its:
            found.setdefault(PinKey(server, one.kind, one.name), []).append(one.definition)
    return Lock({key: agreed(definitions) for key, definitions in found.items()})


def lock_path(config: Path) -> Path:
    """Where the lock of this configuration is."""
    return config.parent / LOCK_NAME


def definitions_folder(path: Path) -> Path:
    """Where the definitions of the lock at `path` lie."""
    return path.with_name(f"{path.name}.d")


# -- the text


def format_lock(lock: Lock) -> str:
    """The text of the file; `parse_lock` reads the same lock from it."""
    lines = [_HEADER, f"format = {FORMAT}"]
    table: tuple[str, PinKind] | None = None
    for key in sorted(lock.entries, key=lambda key: (key.server, PIN_KINDS.index(key.kind), key.name)):
        if table != (key.server, key.kind):
            table = key.server, key.kind
            lines += ["", f"[servers.{_key(key.server)}.{key.kind}]"]
        entry = lock.entries[key]
        digests = ", ".join(f'"{digest}"' for digest in entry.digests)
        lines.append(f"{_key(key.name)} = {{ digests = [{digests}], summary = {_string(entry.summary)} }}")
    return "\n".join(lines) + "\n"


def parse_lock(text: str, file: str = LOCK_NAME) -> Lock:
    """Read the text of a lock; `file` is its name in errors.

    Raises:
        ConfigError: it is not one. The message names the line and what to do.
    """
    return _Parsing(text, file).run()


class _Parsing:
    """The reading of one file."""

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file

    def run(self) -> Lock:
        try:
            document = cast("dict[str, object]", tomllib.loads(self._text))
        except tomllib.TOMLDecodeError as error:
            at = _LINE.search(str(error))
            raise self._error(int(at[1]) if at else None, f"it is no TOML: {error}") from error
        except RecursionError as error:
            raise self._error(None, "it is nested too deeply") from error
        if document.get("format") != FORMAT or isinstance(document["format"], bool):
            raise self._error(
                self._line_of("format"), f"`format = {FORMAT}` was expected; a newer mcpbridge may know it"
            )
        self._known(document, {"format", "servers"}, "")
        entries: dict[PinKey, Agreed] = {}
        for server, kinds in self._table(document.get("servers", {}), "servers").items():
            place = f"servers.{_key(server)}"
            self._known(self._table(kinds, place), set(PIN_KINDS), place)
            for kind in PIN_KINDS:
                names = self._table(cast("dict[str, object]", kinds).get(kind, {}), f"{place}.{kind}")
                if kind == "server":
                    self._known(names, set(FACTS), f"{place}.{kind}")
                for name, value in names.items():
                    entries[PinKey(server, kind, name)] = self._entry(value, f"{place}.{kind}", name)
        return Lock(entries)

    def _entry(self, value: object, table: str, name: str) -> Agreed:
        members = self._table(value, table, name)
        self._known(members, {"digests", "summary"}, table, name)
        digests, summary = members.get("digests"), members.get("summary", "")
        if not isinstance(digests, list) or not digests:
            raise self._error(self._line_of(table, name), f"{name!r} has no list of `digests`")
        texts = cast("list[object]", digests)
        if bad := [one for one in texts if not (isinstance(one, str) and _DIGEST.fullmatch(one))]:
            raise self._error(
                self._line_of(table, name), f"a digest of {name!r} is not 64 hexadecimal digits: {bad[0]!r}"
            )
        if not isinstance(summary, str):
            raise self._error(self._line_of(table, name), f"the `summary` of {name!r} is no text")
        return Agreed(tuple(sorted({cast("str", one) for one in texts})), summary)

    def _table(self, value: object, table: str, name: str = "") -> dict[str, object]:
        if not isinstance(value, dict):
            what = f"{table}.{_key(name)}" if name else table
            raise self._error(self._line_of(table, name), f"{what} is no table")
        return cast("dict[str, object]", value)

    def _known(self, members: Mapping[str, object], known: set[str], table: str, name: str = "") -> None:
        for member in members:
            if member not in known:
                line = self._line_of(table, name or member) or self._line_of(f"{table}.{_key(member)}")
                expected = ", ".join(sorted(known))
                raise self._error(line, f"{member!r} is not known here; expected: {expected}")

    def _line_of(self, table: str, name: str = "") -> int | None:
        """The line of a name in a table, or of the table itself; None where it is written in another way."""
        is_inside = not table
        start: int | None = None
        for number, line in enumerate(self._text.splitlines(), 1):
            stripped = line.strip()
            if stripped.startswith("["):
                is_inside = stripped.strip("[] ") == table
                if is_inside:
                    start = start or number
            elif is_inside and name and stripped.partition("=")[0].strip() == _key(name):
                return number
            elif stripped.partition("=")[0].strip() == table:
                start = start or number
        return start

    def _error(self, line: int | None, what: str) -> ConfigError:
        return ConfigError(what, file=self._file, key=f"line {line}" if line else None, hint=_ADVICE)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    """A basic string of TOML, in which nothing is hidden: what cannot be printed is escaped."""
    escaped = "".join(char if char.isprintable() else _escape(char) for char in text.replace("\\", "\\\\"))
    return '"' + escaped.replace('"', '\\"') + '"'


def _escape(char: str) -> str:
    number = ord(char)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


# -- the files


def read_lock(path: Path) -> Lock | None:
    """The lock at this path; None if there is none.

    Raises:
        ConfigError: it cannot be read, or is no lock.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}", file=str(path), hint=_ADVICE) from error
    if len(data) > LARGEST:
        raise ConfigError(f"it is larger than {LARGEST // 1024**2} MiB", file=str(path), hint=_ADVICE)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError("it is not UTF-8", file=str(path), key=f"line {line}", hint=_ADVICE) from error
    return parse_lock(text.replace("\r\n", "\n"), str(path))


def read_definition(path: Path, digest: str) -> bytes | None:
    """The definition with this digest that is beside the lock at `path`; None if it is not there or was altered."""
    try:
        with (definitions_folder(path) / f"{digest}.json").open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError:
        return None
    for candidate in (data, canonical(data)):
        if sha256(candidate).hexdigest() == digest:
            return candidate
    return None


def write_lock(path: Path, lock: Lock, definitions: Iterable[bytes] = (), *, keeps_old: bool = False) -> None:
    """Write the lock whole, and the definitions it agrees to; those that it no longer names are removed.

    Definitions come first, so that a lock never names what is not there yet. `keeps_old`: what it no longer names stays
    for now, since bridges go by the lock of before until this one is signed.

    Raises:
        OSError: it cannot be written; the lock is as it was.
    """
    folder = definitions_folder(path)
    wanted = lock.digests
    for definition in definitions:
        digest = sha256(definition).hexdigest()
        if digest in wanted and read_definition(path, digest) is None:
            folder.mkdir(parents=True, exist_ok=True)
            _replace(folder / f"{digest}.json", _readable(definition))
    _replace(path, format_lock(lock).encode())
    if not keeps_old:
        remove_unnamed(path, lock)


def remove_unnamed(path: Path, lock: Lock) -> None:
    """Remove the definitions beside the lock at `path` that it does not name.

    Raises:
        OSError: one cannot be removed.
    """
    wanted = lock.digests
    folder = definitions_folder(path)
    if folder.is_dir():
        for file in folder.glob("*.json"):
            if _DIGEST.fullmatch(file.stem) and file.stem not in wanted:
                file.unlink(missing_ok=True)


def _readable(definition: bytes) -> bytes:
    """The definition on lines of its own, if it can be read back from that."""
    try:
        text = msgspec.json.format(definition, indent=2) + b"\n"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return definition
    return text if canonical(text) == definition else definition


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
