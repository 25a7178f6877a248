"""Find the servers that clients have: look at their places, read what is there, translate each server.

What is wrong with one file is a problem of that file and stops no other. Nothing is changed here. Servers that a client
has switched off elsewhere than where it describes them are known to be off; sources: Gemini CLI's settings
(`mcp.allowed`, `mcp.excluded`); Claude Code's documentation of `.mcp.json`, whose servers a user may reject
(`disabledMcpjsonServers`, in its settings or in `~/.claude.json` under the project) or switch off for one project
(`disabledMcpServers` there).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from mcpbridge.app.client_config.clients import CLIENTS, KnownClient, Place, find_client, places
from mcpbridge.app.client_config.discover.dialects import Translated, named_servers, translate, with_env_file
from mcpbridge.app.client_config.discover.discovered_servers import (
    ClientEnvironment,
    Found,
    FoundServer,
    Json,
    Problem,
    together,
)
from mcpbridge.app.client_config.discover.read import Document, format_of, parse, project_of, read_text, recognise
from mcpbridge.app.client_config.discover.variables import Variables
from mcpbridge.base.errors import ConfigError


class SwitchedOff:
    """Says of a name whether the client leaves that server out."""

    def __init__(self, excluded: list[object], allowed: list[object] | None = None) -> None:
        self._excluded, self._allowed = excluded, allowed

    def __call__(self, name: str) -> bool:
        """Whether the server of this name is off."""
        return name in self._excluded or (self._allowed is not None and name not in self._allowed)


def switched_off(place: Place, project: Path | None, claude: Path, documents: dict[Path, Document]) -> SwitchedOff:
    """What is off of a file. `claude`: where Claude Code keeps what it knows of projects. `documents`: read before."""
    if place.file.dialect == "gemini":
        mcp = _member(documents[place.path].value, "mcp")
        return SwitchedOff(_names(_member(mcp, "excluded")), _names(_member(mcp, "allowed")) or None)
    if place.client.id != "claude-code" or project is None:
        return SwitchedOff([])
    known = _member(_member(_value(claude, documents), "projects"), str(project))
    off = _names(_member(known, "disabledMcpServers"))
    if place.file.scope == "project":
        off += _names(_member(known, "disabledMcpjsonServers"))
        for settings in _settings(project):
            off += _names(_member(_value(settings, documents), "disabledMcpjsonServers"))
    return SwitchedOff(off)


def _settings(project: Path) -> Iterator[Path]:
    for name in ("settings.json", "settings.local.json"):
        yield project / ".claude" / name


def _value(path: Path, documents: dict[Path, Document]) -> object:
    """What a file says; nothing if it is not there or wrong, which others tell."""
    if path not in documents:
        try:
            documents[path] = parse(read_text(path), str(path), "jsonc")
        except (FileNotFoundError, ConfigError):
            return None
    return documents[path].value


def _member(value: object, key: str) -> object:
    return cast("Json", value).get(key) if isinstance(value, dict) else None


def _names(value: object) -> list[object]:
    return list(cast("list[object]", value)) if isinstance(value, list) else []


def find_all(
    environ: Mapping[str, str],
    home: Path,
    platform: str,
    project: Path | None,
    *,
    clients: Sequence[KnownClient] = CLIENTS,
) -> Found:
    """All servers in the files of these clients. `project`: absolute; None: only files of the user."""
    around = ClientEnvironment(environ, home, platform, project)
    found: list[Found] = []
    seen: set[tuple[Path, tuple[str, ...]]] = set()
    documents: dict[Path, Document] = {}
    for client in clients:
        for place in places(client, environ, platform, home, project):
            for one in _there(place):
                if (one.path, one.file.key) not in seen:
                    seen.add((one.path, one.file.key))
                    found.append(_look(one, around, documents))
    return together(found)


def find_in_file(path: Path, around: ClientEnvironment) -> Found:
    """All servers of one file that somebody named, whatever its format and dialect. None of these is a problem too."""
    path = path.absolute()
    if path.is_dir():
        return Found(problems=(Problem(path, "is a directory; --project DIR looks for files of clients in one"),))
    try:
        text = read_text(path)
        document = parse(text, str(path), format_of(path, text))
    except FileNotFoundError:
        return Found(problems=(Problem(path, "no such file"),))
    except ConfigError as error:
        return Found(problems=(_problem(path, error),))
    files = recognise(path, document.value, around.environ, around.platform, around.home)
    if not files:
        what = "holds no servers in a form that is known here (mcpServers, servers, mcp_servers, …)"
        return Found(problems=(Problem(path, what),))
    return together(_look(Place(client, file, path), around, {path: document}) for client, file in files)


def _problem(path: Path, error: ConfigError, client: str = "") -> Problem:
    where = (error.file or "").removeprefix(str(path)).lstrip(":")
    line = f"line {where.partition(':')[0]}: " if where else ""
    return Problem(path, f"{line}{error.what}", client)


def _there(place: Place) -> list[Place]:
    """The place, if a file is there; all that fit, if it is a pattern."""
    parts = place.path.parts
    first = next((index for index, part in enumerate(parts) if "*" in part), None)
    try:
        if first is None:
            return [place] if place.path.is_file() else []
        fitting = Path(*parts[:first]).glob("/".join(parts[first:]))
        return [replace(place, path=path) for path in sorted(fitting) if path.is_file()]
    except OSError:  # a folder that may not be looked into
        return []


def _look(place: Place, around: ClientEnvironment, documents: dict[Path, Document]) -> Found:
    client = place.client.id
    try:
        if place.path not in documents:
            documents[place.path] = parse(read_text(place.path), str(place.path), place.file.format)
    except FileNotFoundError:
        return Found()
    except ConfigError as error:
        return Found((place,), (), (_problem(place.path, error, client),))
    document = documents[place.path]
    servers: list[FoundServer] = []
    problems: list[Problem] = []
    for key, project, table in _tables(document.value, place, around.project):
        if isinstance(table, dict | list):
            is_off = switched_off(place, project, _claude_file(around), documents)
            servers += _servers(place, document, key, cast("object", table), project, around, is_off)
        elif table is not None:
            problems.append(Problem(place.path, f"`{'.'.join(key)}` is no table of servers", client))
    if elsewhere := _elsewhere(document.value, place, around.project):
        problems.append(Problem(place.path, elsewhere, client, is_error=False))
    return Found((place,), tuple(servers), tuple(problems))


def _tables(value: object, place: Place, project: Path | None) -> Iterator[tuple[list[str], Path | None, object]]:
    """Every table of servers in a document: its key, the project it is for, and itself."""
    key = list(place.file.key)
    if "*" not in key:
        for spelled in (key, [".".join(key)]):
            if (table := _nested_member(value, spelled)) is not None:
                inner = ["servers"] if place.file.dialect == "opencode" and _is_second_version(table) else []
                yield [*spelled, *inner], project_of(place), _nested_member(table, inner)
                return
        return
    star = key.index("*")
    projects = _nested_member(value, key[:star])
    for path in cast("Json", projects) if isinstance(projects, dict) else ():
        if project is not None and Path(path) in (project, *project.parents):
            whole = [*key[:star], path, *key[star + 1 :]]
            yield whole, Path(path), _nested_member(value, whole)


def _is_second_version(table: object) -> bool:
    """OpenCode 2 has its servers one level deeper."""
    inner = _nested_member(table, ["servers"])
    return isinstance(inner, dict) and not cast("Json", inner).keys() & {"command", "url"}


def _elsewhere(value: object, place: Place, project: Path | None) -> str:
    """Which other projects have servers of their own in this file."""
    key = list(place.file.key)
    if "*" not in key:
        return ""
    star = key.index("*")
    projects = _nested_member(value, key[:star])
    others = [
        path
        for path in (cast("Json", projects) if isinstance(projects, dict) else ())
        if _nested_member(value, [*key[:star], path, *key[star + 1 :]])
        and not (project is not None and Path(path) in (project, *project.parents))
    ]
    if not others:
        return ""
    return f"has servers of other projects, to be imported with --project DIR: {', '.join(others)}"


def _nested_member(value: object, key: Iterable[str]) -> object:
    for part in key:
        value = cast("Json", value).get(part) if isinstance(value, dict) else None
    return value


def _claude_file(around: ClientEnvironment) -> Path:
    """Where Claude Code keeps what it knows of projects."""
    return places(find_client("claude-code"), around.environ, around.platform, around.home, None)[0].path


def _servers(
    place: Place,
    document: Document,
    key: list[str],
    table: object,
    project: Path | None,
    around: ClientEnvironment,
    is_off: SwitchedOff,
) -> Iterator[FoundServer]:
    variables = Variables(
        place.file.dialect,
        place.path.parent,
        project,
        expands=place.client.id != "claude-desktop",
        home="USERPROFILE" if around.platform == "win32" else "HOME",
        separator="\\" if around.platform == "win32" else "/",
        inputs=_inputs(document.value),
    )
    for name, part, given in named_servers(table):
        done = translate(given, variables)
        if done.server:
            done = with_env_file(_settled(done, project), place.path.parent, around.home)
            if is_off(name):
                done.server["disabled"] = True
                done.notes.append("the client has it switched off")
        yield FoundServer(
            place.client.id,
            place.client.title,
            place.file.scope,
            place.path,
            document.line_of([*key, part]),
            name,
            done.server,
            done.left_out,
            tuple(done.notes),
            done.skipped,
            project,
        )


def _settled(done: Translated, project: Path | None) -> Translated:
    """A server of a project starts in that project, as it does with the client."""
    command = done.server.get("command")
    if project is None or not isinstance(command, str):
        return done
    cwd = done.server.get("cwd")
    if not isinstance(cwd, str) or not cwd.startswith(("~", "$")):
        done.server["cwd"] = str(project / cwd) if isinstance(cwd, str) else str(project)
    if "/" in command and not command.startswith(("/", "~", "$")):
        done.server["command"] = str(project / command)
    return done


def _inputs(value: object) -> dict[str, tuple[str, str]]:
    """What VS Code asks its user for (`inputs`): id, the words, and the default."""
    found: dict[str, tuple[str, str]] = {}
    inputs = _nested_member(value, ["inputs"])
    for one in cast("list[object]", inputs) if isinstance(inputs, list) else ():
        given = cast("Json", one) if isinstance(one, dict) else {}
        if isinstance(id_ := given.get("id"), str):
            default = given.get("default")
            words = " ".join(str(given.get("description") or "").split())[:100]
            found[id_] = words, default if isinstance(default, str) else ""
    return found
