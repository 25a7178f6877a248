"""Names that a person may mean, found fast and without starting anything: of servers, tools, arguments, approvals.

Servers come from the configuration file as it is written, and tools from the daemon that runs; without one from what
servers offered when they were up last. A name may be chosen by a stranger, so one that a shell could take for anything
else than a word is left out. Nothing here raises: what cannot be found is not suggested.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from mcpbridge.app.admin.control_client import ask, sockets
from mcpbridge.app.stdio_proxy.daemon_lock import holder, socket_path
from mcpbridge.base.config_file import find_config
from mcpbridge.base.directories import cache_directory, key_of, runtime_directory, runtime_path

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@+=-]*")
"""Names that are words in every shell, quoted or not."""
_PATIENCE = 1.0
"""Seconds for a daemon to answer: a person has pressed a key and waits."""
_LARGEST_CONFIG = 4 * 1024**2

Names = Mapping[str, str]
"""What each is, by name; may be empty."""


class ConfigNames(NamedTuple):
    """What a configuration file names, without being checked."""

    servers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    """Tables of `[tools]`."""
    profiles: tuple[str, ...] = ()
    problem: str = ""
    """Why it cannot be read; empty: it can."""


def config_names(path: str) -> ConfigNames:
    """The names in a configuration file: TOML, or an mcpServers JSON."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - what it is may be the caller's choice
            data = file.read(_LARGEST_CONFIG)
        document: Any = json.loads(data) if path.endswith(".json") else tomllib.loads(data.decode())
    except OSError as error:
        return ConfigNames(problem=f"cannot be read: {error.strerror}")
    except (ValueError, RecursionError):
        return ConfigNames(problem="cannot be read: it is not JSON" if path.endswith(".json") else "it is not TOML")
    if not isinstance(document, dict):
        return ConfigNames(problem="it has no servers")
    sections = cast("dict[str, Any]", document)
    servers = sections.get("mcpServers", sections.get("servers"))
    return ConfigNames(_keys(servers), _keys(sections.get("tools")), _keys(sections.get("profiles")))


def _keys(table: object) -> tuple[str, ...]:
    return tuple(map(str, cast("dict[object, object]", table))) if isinstance(table, dict) else ()


def is_safe(name: str) -> bool:
    """Whether a name can be put into a command line as it is."""
    return len(name) <= 200 and _SAFE.fullmatch(name) is not None


class NameSource:
    """Finds names for one command line. `config`: the file that it names; None: the usual one."""

    def __init__(self, config: str | None) -> None:
        self._config = find_config(config, os.environ)

    def servers(self) -> Names:
        """The servers of the configuration."""
        return dict.fromkeys(self._written().servers, "server")

    def tables(self) -> Names:
        """The tables of `[tools]`."""
        return dict.fromkeys(self._written().tools, "tool of [tools]")

    def profiles(self) -> Names:
        """The profiles of the configuration."""
        return dict.fromkeys(self._written().profiles, "profile")

    def tools(self, typed: str) -> Names:
        """The tools that `call` takes: by the names that clients see, or, once a slash was typed, as SERVER/TOOL."""
        server, slash, _ = typed.partition("/")
        if not slash:
            rows = self._listed("tools")
            heads = {f"{name}/": "server" for name in self.servers()} if not rows else {}
            return {**(self.tables() if not rows else {}), **heads, **rows}
        if (found := self._ask("query", query=f"server:{server}", server="")) is not None:
            return {str(one["id"]): str(one["description"]) for one in _rows(found, "tools") if one["server"] == server}
        known = self._remembered().get(server, ())
        return {f"{server}/{one.get('name')}": str(one.get("description") or "") for one in known}

    def arguments(self, tool: str) -> Mapping[str, Mapping[str, Any]]:
        """The arguments of a tool, by name, each with its schema."""
        found = self._ask("tool", name=tool)
        if found is not None:
            schema = found.get("schema")
        else:
            server, _, name = tool.partition("/")
            server, name = (server, name) if name else tool.partition("__")[::2]
            of = [one for one in self._remembered().get(server, ()) if one.get("name") == name]
            schema = of[0].get("inputSchema") if of else None
        return {name: _object(one) for name, one in _object(_object(schema).get("properties")).items()}

    def resources(self) -> Names:
        """The URIs that the daemon lists."""
        return self._listed("resources")

    def approvals(self) -> Names:
        """The calls that wait for a person, in any bridge that runs."""
        found: dict[str, str] = {}
        with suppress(Exception):
            for path in sockets(runtime_directory(os.environ)):
                answer = ask(path, {"do": "approvals"}, patience=_PATIENCE) or {}
                found |= {str(one["id"]): str(one["tool"]) for one in _rows(answer, "approvals")}
        return found

    def _written(self) -> ConfigNames:
        return config_names(self._config) if self._config else ConfigNames()

    def _listed(self, kind: str) -> Names:
        found = self._ask("list", kinds=[kind], server="", whole=False) or {}
        return {str(row["name"]): str(row["description"]) for row in _rows(_object(found.get("lists")), kind)}

    def _ask(self, do: str, **more: object) -> Mapping[str, Any] | None:
        """What the daemon of this configuration says; None: none runs, or it does not answer at once."""
        if self._config is None:
            return None
        with suppress(Exception):
            directory = runtime_path(os.environ)
            pid = holder(socket_path(directory, key_of(self._config)))
            if pid:
                answer = ask(Path(directory) / f"{pid}.sock", {"do": do, **more}, patience=_PATIENCE)
                return answer if answer is not None and "error" not in answer else None
        return None

    def _remembered(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The tools that each server had when it was up last. Finding them reads all settings, so a copy is kept."""
        if self._config is None:
            return {}
        with suppress(Exception):
            directory = cache_directory(os.environ)
            manifest, copy = directory / "manifest", directory / "completion" / f"{key_of(self._config)}.json"
            made_of = [_changed(self._config), _changed(str(manifest))]
            with suppress(OSError, ValueError, KeyError):
                kept = json.loads(copy.read_bytes())
                if kept["made_of"] == made_of:
                    return kept["tools"]
            found = _known_tools(Path(self._config), manifest)
            with suppress(OSError):
                _write(copy, json.dumps({"made_of": made_of, "tools": found}))
            return found
        return {}


def _changed(path: str) -> list[int]:
    """What is another if a file was edited, or a file was renamed into a directory."""
    status = os.stat(path)  # noqa: PTH116 - cheaper
    return [status.st_mtime_ns, status.st_size, status.st_ino]


def _known_tools(config: Path, manifest: Path) -> dict[str, list[dict[str, Any]]]:
    """The tools of each server as the bridge remembers them; takes a while to load."""
    from mcpbridge.config.load import read
    from mcpbridge.upstream.manifest import Manifest

    remembered, found = Manifest(manifest), dict[str, list[dict[str, Any]]]()
    for name, settings in read(config, os.environ).settings.servers.items():
        known = remembered.of(name, settings).known
        tools = [json.loads(one) for one in known.lists.get("tools", ())] if known else []
        found[name] = [{key: one[key] for key in ("name", "description", "inputSchema") if key in one} for one in tools]
    return found


def _write(path: Path, text: str) -> None:
    """Write a file that this user alone can read, as a whole."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def _object(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _rows(document: Mapping[str, object], name: str) -> Sequence[Mapping[str, Any]]:
    return cast("list[Mapping[str, Any]]", document.get(name) or [])


def matching(typed: str, find_names: Callable[[], Names]) -> Iterator[tuple[str, str]]:
    """Those that begin with what was typed and can be put into a command line, in order."""
    for name, about in sorted(find_names().items()):
        if name.startswith(typed) and is_safe(name):
            yield name, about
