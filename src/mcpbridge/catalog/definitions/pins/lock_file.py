"""The format of `servers.lock`: which definitions of each server are approved. Pure.

It is TOML, sorted, one line a definition: its kind and name, the digests that are allowed, and a summary for people.
There are several digests where users, clients or platforms get different definitions.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import Struct

from mcpbridge.base.errors import ConfigError

FORMAT = 1
"""Of the files; another one is refused."""

_HEAD = """\
# What the servers may tell a model, as it was approved. `mcpbridge lock` and `mcpbridge lock approve` write this file.
# The definitions themselves are in the directory beside it, by their digests. Keep both under version control.
"""
_KEY = re.compile(r"(tool|prompt|resource|template):.*|(identity|instructions|origin):", re.DOTALL)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LONGEST_SUMMARY = 80


class Pin(Struct, frozen=True):
    """One definition that is approved."""

    digests: tuple[str, ...]
    """Those that are allowed; never none. The first is listed in the place of one that is not."""
    summary: str = ""
    """What it is, for people who read the file; means nothing to the bridge."""


Pins = Mapping[str, Pin]
"""The approved definitions of one server, by `KIND:NAME`: `tool:create_issue`, `instructions:`."""


class Lock(Struct, frozen=True):
    """The content of a lock file."""

    servers: Mapping[str, Pins]
    version: int = 1
    """Grows with each change of a signed file, so that an older one is recognised."""

    def with_server(self, name: str, pins: Pins | None) -> "Lock":
        """The same with other pins of one server; None: without it."""
        servers = {**self.servers, name: pins} if pins is not None else {**self.servers}
        if pins is None:
            servers.pop(name, None)
        return Lock(servers, self.version)

    def digests(self) -> frozenset[str]:
        """All digests that are allowed anywhere."""
        return frozenset(one for pins in self.servers.values() for pin in pins.values() for one in pin.digests)


def parse_lock(text: str, file: str) -> Lock:
    """The lock that a text holds.

    Raises:
        ConfigError: it is no lock file, or one of another format.
    """
    try:
        document: dict[str, object] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _wrong(f"it cannot be read: {error}", file) from error
    if document.get("format") != FORMAT:
        raise _wrong(f"it is of format {document.get('format')!r}, and {FORMAT} was expected", file)
    version, servers = document.get("version", 1), document.get("servers", {})
    if (
        not isinstance(servers, dict)
        or not isinstance(version, int)
        or set(document) - {"format", "version", "servers"}
    ):
        raise _wrong("it must have `format`, `version` and the tables `[servers.NAME]`, and nothing else", file)
    tables = cast("dict[str, object]", servers)
    return Lock({name: dict(_pins(name, table, file)) for name, table in tables.items()}, version)


def render_lock(lock: Lock) -> str:
    """The text of a lock file: the same for the same lock."""
    lines = [_HEAD, f"format = {FORMAT}\nversion = {lock.version}\n"]
    for name, pins in sorted(lock.servers.items()):
        lines.append(f"\n[servers.{_quoted(name)}]\n")
        for key, pin in sorted(pins.items()):
            digests = ", ".join(f'"{one}"' for one in pin.digests)
            lines.append(f"{_quoted(key)} = {{ sha256 = [{digests}], summary = {_quoted(pin.summary)} }}\n")
    return "".join(lines)


def summary_of(kind: str, raw: bytes) -> str:
    """What a definition is, in a few words, without any character that could hide something."""
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError):
        return ""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        wanted = {"identity": ("name", "version"), "origin": ("command", "image", "url", "package")}
        found = [members.get(key) for key in wanted.get(kind, ("title", "description", "name"))]
        texts = [one for one in found if isinstance(one, str) and one]
        value = " ".join(texts) if kind in wanted else next(iter(texts), "")
    text = " ".join(value.split()) if isinstance(value, str) else ""
    text = "".join(one if one.isprintable() else "�" for one in text)
    return text if len(text) <= _LONGEST_SUMMARY else f"{text[: _LONGEST_SUMMARY - 1]}…"


def _pins(server: str, table: object, file: str) -> Iterator[tuple[str, Pin]]:
    if not isinstance(table, dict):
        raise _wrong(f"`servers.{server}` must be a table", file)
    for key, value in cast("dict[str, object]", table).items():
        entry: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
        digests = entry.get("sha256")
        named = [digests] if isinstance(digests, str) else digests
        if (
            _KEY.fullmatch(key) is None
            or not isinstance(named, list)
            or not named
            or not all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in cast("list[object]", named))
        ):
            raise _wrong(f"{key!r} of `servers.{server}` has no digests that can be read", file)
        yield key, Pin(tuple(cast("list[str]", named)), str(entry.get("summary", "")))


def _quoted(text: str) -> str:
    """A basic string of TOML. Its escapes are those of JSON, but for characters beyond the BMP."""
    return "".join(
        f"\\U{ord(one):08X}"
        if (not one.isprintable() and ord(one) > 0xFFFF)
        else one
        if one.isprintable() and one not in '"\\'
        else json.dumps(one)[1:-1].replace("\\/", "/")
        for one in text
    ).join('""')


def _wrong(what: str, file: str) -> ConfigError:
    return ConfigError(what, file=file, hint="Restore it from version control, or write it anew: mcpbridge lock")
