"""Read a file of some client: JSON with or without comments, TOML or YAML; whose it is, and the line of each key.

A file that is empty holds nothing, which is no mistake: clients make such files. Whose file a person named is decided
by where it is, by what it is called, else by what is in it.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mcpbridge.app.client_config.clients import CLIENTS, ClientFile, Dialect, Format, KnownClient, Place, places
from mcpbridge.base.errors import ConfigError
from mcpbridge.config import line_numbers as position
from mcpbridge.config import mcp_servers_json as foreign

if TYPE_CHECKING:
    import yaml


_LARGEST_FILE = 64 * 1024**2
"""Bytes. Claude Code keeps its servers beside all that it remembers."""
_MOST_NODES = 200_000
"""Values of a YAML file; its aliases can make a few lines into billions."""
_DEEPEST = 200


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says."""

    value: object
    """Objects, lists, texts, numbers, booleans and None; all keys are texts."""

    line_of: Callable[[Sequence[str]], int | None]
    """The line of a key, if it is known."""


def format_of(path: Path, text: str) -> Format:
    """How a file is written that somebody named: by the end of its name, else by how it begins."""
    suffix = path.suffix.lower()
    by_suffix: dict[str, Format] = {
        ".json": "jsonc",
        ".jsonc": "jsonc",
        ".toml": "toml",
        ".yaml": "yaml",
        ".yml": "yaml",
    }
    if suffix in by_suffix:
        return by_suffix[suffix]
    if text.lstrip("\ufeff \t\r\n").startswith(("{", "//", "/*")):
        return "jsonc"
    return "toml" if re.search(r"^\s*\[[^\]]+\]\s*(#.*)?$", text, re.MULTILINE) else "yaml"


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ConfigError: it cannot be read as text.
        FileNotFoundError: it is not there.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(str(path)) from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no file can have this name"
        raise ConfigError(f"cannot be read: {why}", file=str(path)) from error
    if len(data) > _LARGEST_FILE:
        raise ConfigError("larger than 64 MiB, which no configuration is", file=str(path))
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"  # PowerShell writes the first
    try:
        return data.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("not UTF-8", file=f"{path}:{line}", hint="Save it as UTF-8.") from error


def parse(text: str, file: str, written_as: Format) -> Document:
    """What a text says that is written in a known way. `file`: how errors call it.

    Raises:
        ConfigError: it breaks the rules of that way; says where.
    """
    try:
        if not text.strip():
            return Document({}, lambda key: None)
        if written_as == "toml":
            return _toml(text, file)
        return _yaml(text, file) if written_as == "yaml" else _json(text, file)
    except RecursionError as error:
        raise ConfigError("nested too deeply", file=file) from error


def _json(text: str, file: str) -> Document:
    try:
        value: object = json.loads(text)
        return Document(value, partial(position.json_line, text))
    except ValueError:
        plain = foreign.plain_json(text)
    try:
        value = json.loads(plain) if plain.strip() else {}
    except json.JSONDecodeError as error:
        where = f"{file}:{error.lineno}:{error.colno}"
        raise ConfigError(f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}", file=where) from error
    except ValueError as error:  # a number of too many digits
        raise ConfigError("not valid JSON: a number is too long", file=file) from error
    return Document(value, partial(position.json_line, plain))


def _toml(text: str, file: str) -> Document:
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error), re.DOTALL)
        what, line, column = found.groups() if found else (str(error), None, None)
        where = f"{file}:{line}:{column}" if line else f"{file}:{text.count(chr(10)) + 1}"
        raise ConfigError(f"not valid TOML: {what[:1].lower()}{what[1:]}", file=where) from error
    except ValueError as error:  # a date or number that Python cannot hold
        raise ConfigError("not valid TOML: a value is out of range", file=file) from error
    return Document(_plain(value, [_MOST_NODES]), partial(position.toml_line, text))


def _yaml(text: str, file: str) -> Document:
    import yaml  # lazily: few files need it

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        construct = cast("Callable[[object], object]", loader.construct_document)  # pyright: ignore[reportUnknownMemberType] - the package has no types
        value = construct(node) if node else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise ConfigError(f"not valid YAML: {error.problem or 'broken'}", file=where) from error
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        raise ConfigError("not valid YAML", file=file) from error
    try:
        plain = _plain(value, [_MOST_NODES])
    except OverflowError as error:
        raise ConfigError("its aliases make it too large", file=file) from error
    return Document(plain, partial(_yaml_line, node))


def _plain(value: object, left: list[int], depth: int = 0) -> object:
    """The value with texts for keys, and for whatever JSON does not know (dates, bytes)."""
    left[0] -= 1
    if left[0] < 0:
        raise OverflowError
    if depth > _DEEPEST:
        raise RecursionError
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        return {_key(name): _plain(member, left, depth + 1) for name, member in members.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item, left, depth + 1) for item in cast("list[object]", value)]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _key(name: object) -> str:
    if isinstance(name, bool):
        return "true" if name else "false"
    return "null" if name is None else str(name)


def _yaml_line(node: "yaml.Node | None", key: Sequence[str]) -> int | None:
    """The line, from 1, of the innermost part that holds `key`."""
    import yaml

    line: int | None = None
    for part in key:
        found: tuple[yaml.Node, yaml.Node] | None = None
        if isinstance(node, yaml.MappingNode):
            pairs = cast("list[tuple[yaml.Node, yaml.Node]]", node.value)
            found = next((pair for pair in pairs if pair[0].value == part), None)
        elif isinstance(node, yaml.SequenceNode) and part.isdecimal():
            items = cast("list[yaml.Node]", node.value)
            found = (items[int(part)], items[int(part)]) if int(part) < len(items) else None
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


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
