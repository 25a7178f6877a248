"""Spec files: descriptions of tools and functions in JSON or TOML, as other programs write them, loaded as they stand.

An item is a tool (`tool_id`, `tool_description`, `tool_execution_mode`, `tool_custom_config.schema.input` and `output`,
`tool_calling_config`) or a function (`function_id`, `function_custom_parameters`, `function_calling_config`). The file
is a list of items, or an object with lists of them at any depth. What the files say beyond that is theirs: it is left
out with a warning. What has the wrong type is an error that names file and key.

Nothing in a spec can name a command to run, and nothing in it is expanded here: `${VAR}` is filled in by who loads it.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, cast

from msgspec import Struct

from mcpbridge.backends.spec_items import Place, read_item
from mcpbridge.errors import ConfigError

__all__ = ["SpecTool", "read_spec"]

_PREFIXES = ("tool", "function")
_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]+")
LONGEST_NAME = 32
"""Characters of the name of a table."""
_DEEPEST = 8
"""Objects within objects that are looked through for items."""


class SpecTool(Struct, frozen=True):
    """One item of a spec file, as a table of `[tools]`."""

    name: str
    """Made of its id."""
    table: Mapping[str, object]
    file: str
    key: str
    """Where it stands: `tools[3]`."""
    keys: Mapping[str, str]
    """By the key of the table: where that stands, such as `tools[3].tool_calling_config.endpoint`."""
    warnings: tuple[str, ...] = ()
    """What is not used of it; for people."""


def read_spec(text: str, file: str) -> Iterator[SpecTool]:
    """The items of a spec file. `file`: its path; one that ends in `.toml` is TOML.

    Raises:
        ConfigError: it cannot be read, or an item is wrong; names file and key.
    """
    document = _parsed(text, file)
    found = list(_items(document, Place(file, ""), 0))
    if not found:
        hint = 'Items have a `tool_id` or a `function_id`: [{"tool_id": "weather", "tool_calling_config": {…}}].'
        raise ConfigError("no tools are described here", file=file, hint=hint)
    places: dict[str, str] = {}
    for value, prefix, place in found:
        at = place / f"{prefix}_id"
        name = _name(at.text(value.get(f"{prefix}_id")), at)
        if name in places:
            raise at.error(f"'{name}' stands here twice", f"The other one is {places[name]}.")
        places[name] = place.key
        item = read_item(value, prefix, place)
        yield SpecTool(name, item.table, file, place.key, item.keys, tuple(item.warnings))


def _name(identifier: str, place: Place) -> str:
    """The name of the table: the id, with what cannot stand in a name made a hyphen."""
    name = _UNUSABLE.sub("-", identifier).strip("-_")
    if not name or len(name) > LONGEST_NAME:
        raise place.error(f"not usable as the name of a tool: it needs 1 to {LONGEST_NAME} letters, digits, - or _")
    return name


def _items(value: object, place: Place, depth: int) -> Iterator[tuple[Mapping[str, Any], str, Place]]:
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for number, one in enumerate(cast("list[object]", value)):
            at = Place(place.file, f"{place.key}[{number}]")
            if depth == 0 and not isinstance(one, dict):
                raise at.error("expected an object that describes a tool")
            yield from _items(cast("object", one), at, depth + 1)
    elif isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        prefix = next((one for one in _PREFIXES if f"{one}_id" in members), None)
        if prefix is not None:
            yield members, prefix, place
            return
        stray = next((name for name in members if name.startswith(("tool_calling", "function_calling"))), None)
        if stray is not None:
            missing = f"{stray.partition('_')[0]}_id"
            raise (place / missing).error("missing: what it is called")
        for name, member in members.items():
            yield from _items(cast("object", member), place / name, depth + 1)


def _parsed(text: str, file: str) -> object:
    try:
        if PurePath(file).suffix.lower() == ".toml":
            return tomllib.loads(text)
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"not valid JSON: {error.msg}", file=f"{file}:{error.lineno}:{error.colno}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}", file=file) from error
    except RecursionError as error:
        raise ConfigError("nested too deeply", file=file) from error
