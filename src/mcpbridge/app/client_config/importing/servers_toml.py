"""The text of `servers.toml` with more servers in it: each a table at the end, with its origin above it. Pure.

What was there keeps every character. A server that takes the place of another does so where that one is.
"""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from mcpbridge.app.client_config.discover.discovered_servers import Json
from mcpbridge.app.client_config.importing.secret_detection import masked
from mcpbridge.app.client_config.importing.secrets import without_secrets
from mcpbridge.base.masking.mask import MASK
from mcpbridge.config.files.edit import NotEditable, Spot, put
from mcpbridge.config.files.edit_toml import TomlEditor, as_key, as_value

_NEW_FILE = "# The servers behind mcpbridge.\n"
_WIDEST = 110
"""Characters of a line; a longer inline table gets lines of its own."""
_LONGEST_REMARK = 400


@dataclass(frozen=True, slots=True)
class Table:
    """One server to write."""

    name: str
    server: Json = field(repr=False)
    origin: str
    """Where it came from."""

    left_out: Json = field(default_factory=dict[str, object], repr=False)
    """What has no place in it, to be kept as a comment."""

    is_replacing: bool = False


def with_servers(text: str, tables: Sequence[Table]) -> str:
    """The text of a `servers.toml` with these servers in it.

    Raises:
        NotEditable: it cannot be read, or not be edited without changing what else it says.
    """
    editor = TomlEditor()
    for table in tables:
        if table.is_replacing:
            text = put(editor, text, Spot(("servers",), table.name), _plain(table.server)).text
    new = [table for table in tables if not table.is_replacing]
    appended = _appended(text, new)
    if _says(appended) == _expected(text, new):
        return appended
    for table in new:  # `servers` is written in a way that takes no tables at the end
        text = put(editor, text, Spot(("servers",), table.name), _plain(table.server)).text
    return text


def block(table: Table) -> str:
    """The lines of one server."""
    lines = [f"# {_remark(table.origin)}"]
    lines += [f"# left out: {_remark(f'{key} = {_blind(key, value)}')}" for key, value in table.left_out.items()]
    path = f"servers.{as_key(table.name)}"
    lines.append(f"[{path}]")
    below: list[str] = []
    for key, value in _plain(table.server).items():
        line = f"{as_key(key)} = {as_value(value)}"
        if isinstance(value, dict) and len(line) > _WIDEST:
            members = cast("Json", value).items()
            below += ["", f"[{path}.{as_key(key)}]", *(f"{as_key(name)} = {as_value(item)}" for name, item in members)]
        elif isinstance(value, list) and len(line) > _WIDEST:
            lines += [f"{as_key(key)} = [", *(f"    {as_value(item)}," for item in cast("list[object]", value)), "]"]
        else:
            lines.append(line)
    return "\n".join([*lines, *below]) + "\n"


def _appended(text: str, tables: Sequence[Table]) -> str:
    if not tables:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    blocks = "\n".join(block(table) for table in tables).replace("\n", newline)
    if not text.strip("\ufeff \t\r\n"):
        return (text or _NEW_FILE) + newline + blocks
    end = "" if text.endswith("\n") else newline
    return text + end + newline + blocks


def _says(text: str) -> object:
    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _expected(text: str, tables: Sequence[Table]) -> object:
    document = cast("Json", TomlEditor().parse(text) or {})
    servers = document.get("servers")
    if servers is not None and not isinstance(servers, dict):
        raise NotEditable("`servers` is no table")
    own = cast("Json", servers) if isinstance(servers, dict) else {}
    together = {**own, **{table.name: _plain(table.server) for table in tables}}
    return {**document, "servers": together} if together or servers is not None else document


def _plain(server: Json) -> Json:
    """As it is written: whole numbers without a point, and nothing that is null."""
    return {key: _of_toml(value) for key, value in server.items() if value is not None}


def _of_toml(value: object) -> object:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    if isinstance(value, dict):
        return _plain(cast("Json", value))
    if isinstance(value, list):
        return [_of_toml(item) for item in cast("list[object]", value) if item is not None]
    return value


def _blind(key: str, value: object) -> str:
    """A value for a comment, without the secrets in it."""
    cleaned = without_secrets("", {key: value}, lambda _name, _value: MASK)[key]
    return json.dumps(masked(cleaned, key))


def _remark(text: str) -> str:
    """Text for a comment: one line, without what no comment may hold."""
    line = "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)
    return line if len(line) <= _LONGEST_REMARK else f"{line[: _LONGEST_REMARK - 1]}…"
