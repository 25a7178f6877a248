"""When two descriptions mean one server, and when one means the bridge itself. Pure.

What is compared is what would be started or reached: program, arguments, variables, directory; address and headers.
How long to wait for it, what of it to offer and whether it is switched off say nothing about which server it is.

From servers that many files name to the servers of one file: each once, each with a name of its own. Pure.

The first that is found keeps its name. What is there already keeps its own, too, and what it says: people may have
changed it since it was imported.

Whether the bridge would take a translated server; what it would refuse is mended or left out, with the reason.

The bridge's own check decides, so that nothing is written that it cannot read.

What a configuration needs from outside before its servers can start: variables and private files.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal, cast

from mcpbridge.app.client_config.discover.found import FoundServer
from mcpbridge.app.client_config.discover.variables import PROJECT
from mcpbridge.app.client_config.entry import runs_bridge
from mcpbridge.app.client_config.importing.secrets import without_secrets
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.check import check, refuse_what_only_loading_sets
from mcpbridge.config.error_messages import dotted
from mcpbridge.config.mcp_servers_json import NAME_LENGTH, usable_name
from mcpbridge.core.model import BRIDGE

_LAUNCHERS = {"npx", "npm", "pnpm", "bunx", "bun", "deno", "node", "uvx", "uv", "pipx", "python", "docker", "podman"}
"""Programs that are the same wherever they are installed."""
_YES = {"npx": ("-y", "--yes"), "npm": ("-y", "--yes")}
"""Arguments that only keep a launcher from asking."""
_REFERENCE = re.compile(r"\$\{[^}]*\}")


def program_of(server: Mapping[str, object]) -> tuple[str, list[str]]:
    """Program and arguments of a `command`, the program by its name alone if that tells it; else empty ones."""
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


Json = dict[str, object]

Became = Literal["new", "replaced", "there", "kept", "same", "bridge", "left-out"]
"""What became of a server: written; written over another; there already, under this name or another; not taken since
another of its name is there; the same as one before; the bridge itself; not servable."""

_ABOUT_IT = {"call_timeout", "max_call_timeout", "init_timeout", "tools", "title", "start", "share", "transport"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one server that was found."""

    found: FoundServer
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

    def add(self, found: FoundServer) -> None:
        self.outcomes.append(self._outcome(found))

    def _outcome(self, found: FoundServer) -> Outcome:
        if found.skipped:
            return Outcome(found, "left-out", detail=found.skipped)
        if is_bridge(found.name, found.server):
            return Outcome(found, "bridge", detail="is this bridge")
        start = start_of(found.server)
        if (index := self._first.get(start)) is not None:
            return self._again(found, index)
        self._first[start] = len(self.outcomes)
        name = self._name_for(found)
        self._names.add(name)
        renamed = "" if name == found.name else f"called {name!r} here"
        if (there := self._there(found, name)) is not None:
            return Outcome(found, "there", there, "" if there == found.name else f"called {there!r} here")
        if name in self._existing:
            if self._replacing:
                return Outcome(found, "replaced", name, "takes the place of the one of this name")
            return Outcome(found, "kept", name, "another of this name is in it; --replace takes this one")
        return Outcome(found, "new", name, renamed)

    def _there(self, found: FoundServer, name: str) -> str | None:
        """The name of the same server in the file. Under its own name, its secrets may have become variables."""
        if (own := self._existing.get(name)) is not None:
            cleaned = without_secrets(name, found.server, _somewhere_else)
            if start_of(own, blind=True) in (start_of(one, blind=True) for one in (found.server, cleaned)):
                return name
        return self._starts.get(start_of(found.server))

    def _again(self, found: FoundServer, index: int) -> Outcome:
        """The same server as one before, which is on if one of them is."""
        first = self.outcomes[index]
        server = first.found.server
        if server.get("disabled") and not found.server.get("disabled"):
            enabled = {key: value for key, value in server.items() if key != "disabled"}
            self.outcomes[index] = replace(first, found=replace(first.found, server=enabled))
        differs = sorted(key for key in _ABOUT_IT if server.get(key) != found.server.get(key))
        what = f"is {first.name!r} of {first.found.title}"
        detail = f"{what}, whose {', '.join(f'`{key}`' for key in differs)} counts" if differs else what
        return Outcome(found, "same", first.name, detail)

    def _name_for(self, found: FoundServer) -> str:
        """A name that no other server found before has."""
        name = usable_name(found.name)
        if name not in self._names:
            return name
        for suffix in (f"-{found.client or 'file'}", *(f"-{number}" for number in range(2, 1000))):
            longer = name[: NAME_LENGTH - len(suffix)].rstrip("-_") + suffix
            if longer not in self._names:
                return longer
        return name  # a thousand of one name; the last of them counts


def _somewhere_else(name: str, _: str) -> str:
    return f"${{{name}}}"


_MAKES_IT = {"command", "args", "env", "cwd", "url", "headers"}
"""Without these it would be another server."""
_MOST_MISTAKES = 50


def servable(found: FoundServer) -> FoundServer:
    """The same server with only what the bridge would take, or skipped with the reason."""
    if found.skipped:
        return found
    server, left_out, notes = dict(found.server), dict(found.left_out), list(found.notes)
    for _ in range(_MOST_MISTAKES):
        mistake = _mistake(server, found.file)
        if mistake is None:
            return _with(found, server, left_out, notes)
        key = _key_in(mistake, server)
        if key is None or key in _MAKES_IT:
            return _skipped(found, _reason(mistake))
        left_out[key] = server.pop(key)
        notes.append(f"`{key}` was left out: {_reason(mistake)}")
    return _skipped(found, "too much of it would be refused")


def _mistake(server: dict[str, object], file: Path) -> ConfigError | None:
    """What the bridge would say. Variables count as there: what they bring in is known only later."""
    for key, value in server.items():
        try:
            json.dumps({key: value}, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:
            return ConfigError("there is half a character in it", key=f"servers.it.{dotted([key])}")
        except ValueError:
            return ConfigError("there is a number in it that is none", key=f"servers.it.{dotted([key])}")
    document: dict[str, object] = {"servers": {"it": _without_references(server)}}
    try:
        refuse_what_only_loading_sets(document, str(file), lambda key: None)
        check(document, file, {}, lambda key: None)
    except ConfigError as mistake:
        return mistake
    except RecursionError:
        return ConfigError("nested too deeply")
    return None


def _without_references(value: object, key: str = "") -> object:
    """The value with something harmless where a variable brings something in; where projects may stand is checked."""
    if isinstance(value, str):
        whole = "http://unavailable.invalid" if key in ("url", "proxy") else "1"
        value = re.sub(r"^\$\{[^}]*\}", whole, value) if not value.startswith(PROJECT) else value
        return re.sub(r"(?<!\$)\$\{(?!PROJECT_ROOT\})[^}]*\}", "1", value)
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {name: _without_references(member, name) for name, member in members.items()}
    if isinstance(value, list):
        return [_without_references(item) for item in cast("list[object]", value)]
    return value


def _key_in(mistake: ConfigError, server: dict[str, object]) -> str | None:
    """Which key of the server is wrong, if it is one."""
    key = (mistake.key or "").removeprefix("servers.it").removeprefix(".")
    return next((name for name in server if key == dotted([name]) or key.startswith(f"{dotted([name])}.")), None)


def _reason(mistake: ConfigError) -> str:
    """On one line, and never with a value: the bridge shows values of these files nowhere."""
    what = re.sub(r" \(found .*\)$", "", mistake.what.partition("\n")[0])
    return re.sub(r"\s+", " ", what)


def _skipped(found: FoundServer, reason: str) -> FoundServer:
    return replace(found, server={}, skipped=reason)


def _with(found: FoundServer, server: dict[str, object], left_out: dict[str, object], notes: list[str]) -> FoundServer:
    return replace(found, server=server, left_out=left_out, notes=tuple(notes))


_VARIABLE = re.compile(r"(?<!\$)\$\{(?:env:)?(?!PROJECT_ROOT[:}])([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
_FILE = re.compile(r"(?<!\$)\$\{file:([^}]+)\}")


def variables_of(config: Path) -> tuple[str, ...]:
    """The names of the variables that servers of a configuration use; none if it cannot be read."""
    try:
        document: object = tomllib.loads(config.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return ()
    servers = cast("dict[str, object]", document).get("servers")
    tables = cast("dict[str, dict[str, object]]", servers) if isinstance(servers, dict) else {}
    on = [table for table in tables.values() if not ("disabled" in table and table["disabled"] is True)]
    return tuple(dict.fromkeys(name for name, _ in variables_in(on)))


def variables_in(value: object) -> Iterator[tuple[str, bool]]:
    """Each variable in a value as it is written, and whether there has to be one: it has no default."""
    for text in _texts(value):
        yield from ((found[1], found[2] is None) for found in _VARIABLE.finditer(text))


def missing_in(server: object, environ: Mapping[str, str], directory: Path) -> list[str]:
    """What a server, as it is written, waits for: `${NAME}` of unset variables and files that are not there.

    `directory`: where relative paths of files start.
    """
    unset = [f"${{{name}}}" for name, is_needed in variables_in(server) if is_needed and name not in environ]
    files = [
        found[0]
        for text in _texts(server)
        for found in _FILE.finditer(text)
        if not (directory / Path(found[1]).expanduser()).is_file()
    ]
    return list(dict.fromkeys([*unset, *files]))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in cast("dict[str, object]", value).values():
            yield from _texts(member)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _texts(item)
