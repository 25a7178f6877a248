"""From servers that many files name to the servers of one file: which are the same, and which of them counts. Pure.

The first that is found keeps its name. What is there already keeps its own, too, and what it says: people may have
changed it since it was imported. Two descriptions mean one server when the same would be started or reached: program,
arguments, variables, directory; address and headers. How long to wait for it, what of it to offer and whether it is
switched off say nothing about which server it is.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath, PureWindowsPath
from typing import Literal, cast

from mcpbridge.app.client_config.discover.discovered_servers import FoundServer, Json
from mcpbridge.app.client_config.entry import runs_bridge
from mcpbridge.app.client_config.importing.secrets import without_secrets
from mcpbridge.config.mcp_servers_json import NAME_LENGTH, usable_name
from mcpbridge.core.model import BRIDGE

_LAUNCHERS = {"npx", "npm", "pnpm", "bunx", "bun", "deno", "node", "uvx", "uv", "pipx", "python", "docker", "podman"}
"""Programs that are the same wherever they are installed."""
_YES = {"npx": ("-y", "--yes"), "npm": ("-y", "--yes")}
"""Arguments that only keep a launcher from asking."""
_REFERENCE = re.compile(r"\$\{[^}]*\}")


def program_of(server: Mapping[str, object]) -> tuple[str, list[str]]:
    """Program and arguments of a `command`, the program by its name alone if that is enough; else empty ones."""
    command = server.get("command")
    given = server.get("args")
    args = [str(one) for one in cast("list[object]", given)] if isinstance(given, list) else []
    if not isinstance(command, str) or not command:
        return "", args
    if _name(command) == "cmd" and len(args) > 1 and args[0].lower() == "/c":  # how Windows starts a script
        command, *args = args[1:]
    name = re.sub(r"(?<=^python)[0-9.]+$", "", _name(command))
    if name in _LAUNCHERS:
        return name, args
    return command, args


def start_of(server: Mapping[str, object], *, blind: bool = False) -> str:
    """What two descriptions of one server have in common, as a text to compare.

    `blind`: whatever variables bring in counts as equal, since a value may have been moved into one.
    """
    program, args = program_of(server)
    args = [one for one in args if one not in _YES.get(program, ())]
    url = str(server.get("url") or "").rstrip("/")
    headers = server.get("headers")
    named = cast("dict[str, object]", headers) if isinstance(headers, dict) else {}
    by_header = {name.lower(): value for name, value in named.items()}
    what = [program, args, server.get("env") or {}, server.get("cwd") or "", url, by_header, server.get("auth") or {}]
    text = json.dumps(what, sort_keys=True, default=str)
    return _REFERENCE.sub("${}", text) if blind else text


def is_bridge(name: str, server: Mapping[str, object]) -> bool:
    """Whether this is the bridge, as a client has it in its file."""
    url = str(server.get("url") or "")
    is_here = bool(re.match(r"[a-z]+://(localhost|127\.0\.0\.1|\[::1\])[:/]", url))
    return runs_bridge(server) or (name == BRIDGE and is_here)


def _name(program: str) -> str:
    """The name of a program without folders and the endings of Windows."""
    name = PureWindowsPath(PurePosixPath(program).name).name.lower()
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", name)


Became = Literal["new", "replaced", "there", "kept", "same", "bridge", "left-out"]
"""What became of a server: written; written over another; there already, under this name or another; not taken since
another of its name is there; the same as one before; the bridge itself; not servable."""

_ABOUT_IT = {"call_timeout", "max_call_timeout", "init_timeout", "tools", "title", "start", "share", "transport"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one server that was found."""

    entry: FoundServer
    became: Became
    name: str = ""
    """Its name in `servers.toml`, or of the one that stands for it."""

    detail: str = ""
    """Why; for people."""

    @property
    def is_written(self) -> bool:
        """Whether it goes into the file."""
        return self.became in ("new", "replaced")


def merge(servers: Sequence[FoundServer], existing: Mapping[str, Json], *, replacing: bool = False) -> list[Outcome]:
    """What becomes of each server, in their order. `existing`: those of the file, by name, as written there."""
    merging = _Merging(existing, replacing)
    for found in servers:
        merging.add(found)
    return merging.outcomes


class _Merging:
    def __init__(self, existing: Mapping[str, Json], replacing: bool) -> None:
        self._existing, self._replacing = existing, replacing
        self._starts = {start_of(server): name for name, server in existing.items()}
        self._first: dict[str, int] = {}
        """By start, the outcome of the one that was found first."""
        self._names: set[str] = set()
        self.outcomes: list[Outcome] = []

    def add(self, entry: FoundServer) -> None:
        self.outcomes.append(self._outcome(entry))

    def _outcome(self, entry: FoundServer) -> Outcome:
        if entry.skipped:
            return Outcome(entry, "left-out", detail=entry.skipped)
        if is_bridge(entry.name, entry.server):
            return Outcome(entry, "bridge", detail="is this bridge")
        start = start_of(entry.server)
        if (index := self._first.get(start)) is not None:
            return self._again(entry, index)
        self._first[start] = len(self.outcomes)
        name = self._name_for(entry)
        self._names.add(name)
        renamed = "" if name == entry.name else f"called {name!r} here"
        if (there := self._there(entry, name)) is not None:
            return Outcome(entry, "there", there, "" if there == entry.name else f"called {there!r} here")
        if name in self._existing:
            if self._replacing:
                return Outcome(entry, "replaced", name, "takes the place of the one of this name")
            return Outcome(entry, "kept", name, "another of this name is in it; --replace takes this one")
        return Outcome(entry, "new", name, renamed)

    def _there(self, entry: FoundServer, name: str) -> str | None:
        """The name of the same server in the file. Under its own name, its secrets may have become variables."""
        if (own := self._existing.get(name)) is not None:
            cleaned = without_secrets(name, entry.server, _somewhere_else)
            if start_of(own, blind=True) in (start_of(one, blind=True) for one in (entry.server, cleaned)):
                return name
        return self._starts.get(start_of(entry.server))

    def _again(self, entry: FoundServer, index: int) -> Outcome:
        """The same server as one before, which is on if one of them is."""
        first = self.outcomes[index]
        server = first.entry.server
        if server.get("disabled") and not entry.server.get("disabled"):
            enabled = {key: value for key, value in server.items() if key != "disabled"}
            self.outcomes[index] = replace(first, entry=replace(first.entry, server=enabled))
        differs = sorted(key for key in _ABOUT_IT if server.get(key) != entry.server.get(key))
        what = f"is {first.name!r} of {first.entry.title}"
        detail = f"{what}, whose {', '.join(f'`{key}`' for key in differs)} counts" if differs else what
        return Outcome(entry, "same", first.name, detail)

    def _name_for(self, entry: FoundServer) -> str:
        """A name that no other server found before has."""
        name = usable_name(entry.name)
        if name not in self._names:
            return name
        for suffix in (f"-{entry.client or 'file'}", *(f"-{number}" for number in range(2, 1000))):
            longer = name[: NAME_LENGTH - len(suffix)].rstrip("-_") + suffix
            if longer not in self._names:
                return longer
        return name  # a thousand of one name; the last of them counts


def _somewhere_else(name: str, _: str) -> str:
    return f"${{{name}}}"
