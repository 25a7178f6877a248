"""Which client's file did somebody name? Told by where it is, by what it is called, else by what stands in it. Pure."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import cast

from mcpbridge.client_files.known import CLIENTS, ClientFile, Dialect, KnownClient, Place, places

__all__ = ["project_of", "recognise"]

Json = dict[str, object]


def project_of(place: Place) -> Path | None:
    """The directory of the project that a file belongs to; None for a file of the user."""
    root, _, rest = place.file.path.partition("/")
    return place.path.parents[rest.count("/")] if root == "{project}" else None


def recognise(
    path: Path, value: object, environ: Mapping[str, str], platform: str, home: Path
) -> list[tuple[KnownClient, ClientFile]]:
    """How to read the servers of a document: several ways where it holds several tables, none where it holds none."""
    exact = [
        (place.client, place.file)
        for client in CLIENTS
        for place in places(client, environ, platform, home, None)
        if place.path == path
    ]
    if exact:
        return exact
    alike = [
        (client, file)
        for scope in ("project", "user", "local")
        for client in CLIENTS
        for file in client.files
        if file.scope == scope and _fits(path, file) and _has(value, file.key)
    ]
    if alike:
        client, first = alike[0]
        also = [file for other, file in alike[1:] if other == client and file.key != first.key]
        return [(client, file) for file in (first, *also)]
    return [(KnownClient("", "file", (file,)), file) for file in _by_content(path, value)]


def _fits(path: Path, file: ClientFile) -> bool:
    """Whether the last names of a path are those of a client's file."""
    for template in filter(None, (file.path, file.windows)):
        _, *names = template.split("/")
        last = path.parts[-len(names) :]
        if len(last) == len(names) and all(map(fnmatchcase, last, names)):
            return True
    return False


def _has(value: object, key: tuple[str, ...]) -> bool:
    for part in key:
        if part == "*":
            return True
        if not isinstance(value, dict):
            return False
        value = cast("Json", value).get(part)
    return value is not None


def _by_content(path: Path, value: object) -> Iterator[ClientFile]:
    if not isinstance(value, dict):
        return
    document = cast("Json", value)
    is_yaml = path.suffix.lower() in (".yaml", ".yml")
    ways: list[tuple[tuple[str, ...], Dialect]] = [
        (("mcpServers",), _of_common(document.get("mcpServers"), is_yaml=is_yaml)),
        (("mcp_servers",), "codex"),
        (("context_servers",), "zed"),
        (("servers",), "common" if path.suffix.lower() == ".toml" else "vscode"),
        _way_of_mcp(document.get("mcp")),
        (("extensions",), "goose"),
        (("amp.mcpServers",), "common"),
    ]
    for key, dialect in ways:
        table = document.get(key[0])
        if isinstance(table, dict | list) and table:
            yield ClientFile("user", "jsonc", key, str(path), dialect=dialect)
            return
    if document and all(map(_is_server, document.values())):
        yield ClientFile("user", "jsonc", (), str(path))


def _is_server(value: object) -> bool:
    return isinstance(value, dict) and bool(cast("Json", value).keys() & {"command", "url"})


def _way_of_mcp(table: object) -> tuple[tuple[str, ...], Dialect]:
    """`mcp` is OpenCode's table of servers, or has one in it; or it is a part of the settings of VS Code."""
    inner = cast("Json", table).get("servers") if isinstance(table, dict) else None
    if isinstance(inner, dict) and not any(map(_is_of_opencode, cast("Json", inner).values())):
        return ("mcp", "servers"), "vscode"
    return ("mcp",), "opencode"


def _of_common(table: object, *, is_yaml: bool) -> Dialect:
    if isinstance(table, list):
        return "continue"
    if is_yaml:
        return "librechat"
    members = cast("Json", table).values() if isinstance(table, dict) else ()
    return "gemini" if any(isinstance(one, dict) and "httpUrl" in one for one in members) else "common"


def _is_of_opencode(server: object) -> bool:
    given = cast("Json", server) if isinstance(server, dict) else {}
    return given.get("type") in ("local", "remote") or isinstance(given.get("command"), list)
