"""Spec files: descriptions of tools and functions in JSON or TOML, as other programs write them. Pure but for reading.

An item is a tool (`tool_id`, `tool_description`, `tool_execution_mode`, `tool_custom_config.schema.input` and `output`,
`tool_calling_config`) or a function (`function_id`, `function_custom_parameters`, `function_calling_config`). The file
is a list of items, or an object with lists of them at any depth. What the files say beyond that is left out with a
warning. What has the wrong type is an error that names file and key.

Nothing in a spec can name a command to run, and nothing in it is expanded here: `${VAR}` is filled in by who loads it.
"""

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, cast

from msgspec import Struct

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.suggestions import nearest
from mcpbridge.tools.python.import_object import OBJECT_NAME

_PROTOCOLS = {
    **dict.fromkeys(("http", "https", "rest"), "http"),
    "grpc": "grpc",
    **dict.fromkeys(("a2a", "agent"), "agent"),
    "openapi": "openapi",
    **dict.fromkeys(("local", "python", "function", "executor"), "local"),
}
"""What `protocol` says, and what is made of it."""

_TARGETS = {"http": "endpoint", "grpc": "grpc", "agent": "agent", "openapi": "openapi"}
"""The key of a table that the `endpoint` of a call becomes."""

_OWN = {
    "http": {"method": "method", "headers": "headers", "params": "params", "body": "body", "health": "health"},
    "grpc": {"method": "method", "service": "service", "headers": "metadata", "metadata": "metadata", "tls": "tls"},
    "agent": {"headers": "headers"},
    "openapi": {"headers": "headers", "base_url": "base_url"},
    "local": {"constructor_args": "constructor_args", "warm_up": "warm_up"},
}
"""Keys of `*_calling_config` that a kind takes, and what they become."""

_SHARED = ("input_mapping", "output_mapping", "auth", "tls", "proxy")
"""Keys of `*_calling_config` that stay what they are, for those that speak HTTP."""

_TYPES: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    **dict.fromkeys(("headers", "constructor_args", "metadata", "params"), (dict, "an object")),
    **dict.fromkeys(("protocol", "endpoint", "method", "executor_class", "function", "service"), (str, "a text")),
    **dict.fromkeys(("timeout_s", "timeout"), ((int, float, str), "seconds")),
    "retry": ((dict, int), "an object with `tries` and `backoff_s`"),
    **dict.fromkeys(("input_mapping", "output_mapping"), ((str, dict), "a JSONPath, or names with one each")),
}

_STEMS = ("id", "name", "description", "execution_mode", "custom_config", "custom_parameters", "calling_config")
"""Keys of an item, behind `tool_` or `function_`."""


class Place:
    """Where something is in a spec file."""

    def __init__(self, file: str, key: str) -> None:
        self.file, self.key = file, key

    def __truediv__(self, name: str) -> "Place":
        return Place(self.file, f"{self.key}.{name}" if self.key else name)

    def error(self, what: str, hint: str | None = None) -> ConfigError:
        """What is wrong here."""
        return ConfigError(what, file=self.file, key=self.key, hint=hint)

    def table(self, value: object) -> dict[str, Any]:
        """An object; nothing counts as an empty one."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.error(f"expected an object, not {_kind(value)}")
        return cast("dict[str, Any]", value)

    def text(self, value: object) -> str:
        """A text."""
        if not isinstance(value, str):
            raise self.error(f"expected a text, not {_kind(value)}")
        return value


class Item:
    """One item on its way to a table."""

    def __init__(self, place: Place, prefix: str) -> None:
        self.place, self.prefix = place, prefix
        self.table: dict[str, Any] = {}
        self.keys: dict[str, str] = {}
        """By the key of the table: the key in the file."""
        self.warnings: list[str] = []

    def put(self, name: str, value: object, place: Place) -> None:
        """Set a key of the table."""
        self.table[name] = value
        self.keys[name] = place.key

    def warn(self, place: Place, unused: Sequence[str], known: Collection[str]) -> None:
        """Warn people of keys that mean nothing here."""
        if unused:
            close = {name: nearest(name, known, limit=1) for name in unused}
            told = [f"`{name}`" + (f" (did you mean `{near[0]}`?)" if near else "") for name, near in close.items()]
            self.warnings.append(f"{place.file}: {place.key}: not used: {', '.join(told)}")


def read_item(value: Mapping[str, Any], prefix: str, place: Place) -> Item:
    """The table of one item. `prefix`: `tool` or `function`, which its keys begin with.

    Raises:
        ConfigError: something in it has the wrong type, or it cannot be called; names file and key.
    """
    item = Item(place, prefix)
    if (described := value.get(f"{prefix}_description")) is not None:
        where = place / f"{prefix}_description"
        item.put("description", where.text(described), where)
    _schemas(item, value)
    mode = value.get(f"{prefix}_execution_mode")
    if mode is not None and mode not in ("local", "remote"):
        raise (place / f"{prefix}_execution_mode").error("expected `local` or `remote`")
    _calling(item, value, mode)
    if isinstance(title := value.get(f"{prefix}_name"), str):
        item.put("title", title, place / f"{prefix}_name")
    known = {f"{prefix}_{stem}" for stem in _STEMS}
    item.warn(place, [name for name in value if name not in known], known)
    return item


def _schemas(item: Item, value: Mapping[str, Any]) -> None:
    where = item.place / f"{item.prefix}_custom_config"
    config = where.table(value.get(f"{item.prefix}_custom_config"))
    schema = (where / "schema").table(config.get("schema"))
    for name in ("input", "output"):
        if schema.get(name) is not None:
            at = where / "schema" / name
            item.put(f"{name}_schema", at.table(schema[name]), at)
    for name in ("examples", "tags"):
        if isinstance(config.get(name), list):
            item.put(name, config[name], where / name)
    where = item.place / f"{item.prefix}_custom_parameters"
    parameters = value.get(f"{item.prefix}_custom_parameters")
    if parameters is not None and "input_schema" not in item.table:
        item.put("input_schema", _as_schema(parameters, where), where)


def _as_schema(parameters: object, where: Place) -> dict[str, Any]:
    """The schema of parameters: one as it is, or a table, or a list, of parameters by name."""
    if isinstance(parameters, list):
        named: dict[str, Any] = {}
        for number, one in enumerate(cast("list[object]", parameters)):
            at = Place(where.file, f"{where.key}[{number}]")
            table = dict(at.table(one))
            named[(at / "name").text(table.pop("name", None))] = table
    else:
        named = where.table(parameters)
        if named.get("type") == "object" or "properties" in named or "$ref" in named:
            return {"type": "object", **named}
    required: list[str] = []
    properties: dict[str, Any] = {}
    for name, one in named.items():
        table = {"type": one} if isinstance(one, str) else dict((where / name).table(one))
        if isinstance(needed := table.get("required"), bool):
            del table["required"]
            required += [name] * needed
        properties[name] = table
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _calling(item: Item, value: Mapping[str, Any], mode: object) -> None:
    where = item.place / f"{item.prefix}_calling_config"
    config = where.table(value.get(f"{item.prefix}_calling_config"))
    for name, (kind, expected) in _TYPES.items():
        given = config.get(name)
        if given is not None and (not isinstance(given, kind) or isinstance(given, bool)):
            raise (where / name).error(f"expected {expected}, not {_kind(given)}")
    kind = _kind_of(config, mode, where)
    used = {"protocol"}
    if kind == "local":
        used |= _locally(item, config, where)
    else:
        target = config.get("endpoint")
        if not target:
            raise (where / "endpoint").error("missing: where it is called")
        if kind == "grpc" and (found := re.fullmatch(r"(grpcs?)://(.*)", str(target))):
            target = found[2]
            item.put("tls", found[1] == "grpcs", where / "endpoint")
        item.put(_TARGETS[kind], target, where / "endpoint")
        used.add("endpoint")
    shared = _SHARED if kind in ("http", "openapi", "agent") else ()
    for name, own in {**_OWN[kind], **{one: one for one in shared}}.items():
        if config.get(name) is not None:
            item.put(own, config[name], where / name)
        used.add(name)
    used |= _times(item, config, where)
    item.warn(where, [name for name in config if name not in used], used)


def _kind_of(config: Mapping[str, Any], mode: object, where: Place) -> str:
    protocol = config.get("protocol")
    if protocol is None:
        is_local = mode == "local" or config.get("executor_class") or config.get("function")
        is_local = is_local or re.match(OBJECT_NAME, str(config.get("endpoint", "")))
        return "local" if is_local else "http"
    kind = _PROTOCOLS.get(str(protocol).lower())
    if kind is None:
        if str(protocol).lower() in ("mcp", "stdio", "sse", "streamable_http", "streamable-http"):
            hint = "An MCP server goes into the configuration itself: [servers.NAME]."
            raise (where / "protocol").error("MCP servers are no tools of a spec", hint)
        close = nearest(str(protocol), _PROTOCOLS, limit=1)
        hint = f"Did you mean `{close[0]}`?" if close else f"One of {', '.join(_PROTOCOLS)}."
        raise (where / "protocol").error(f"unknown protocol {str(protocol)[:40]!r}", hint)
    if mode == "remote" and kind == "local":
        raise (where / "protocol").error("`remote` execution and a local protocol exclude each other")
    return kind


def _locally(item: Item, config: Mapping[str, Any], where: Place) -> set[str]:
    """An object of a class, or a function: `executor_class`, `function`, or an `endpoint` that names either."""
    if config.get("executor_class"):
        item.put("executor_class", config["executor_class"], where / "executor_class")
        return {"executor_class"}
    for name in ("function", "endpoint"):
        if reference := config.get(name):
            module, colon, attribute = str(reference).partition(":")
            if not colon:
                module, _, attribute = str(reference).rpartition(".")
            item.put("function", f"{module}:{attribute}", where / name)
            return {name}
    raise where.error(
        "missing: what to run", "Name an `executor_class` (pkg.mod.Class) or a `function` (pkg.mod:name)."
    )


def _times(item: Item, config: Mapping[str, Any], where: Place) -> set[str]:
    for name in ("timeout_s", "timeout"):
        if config.get(name) is not None:
            item.put("call_timeout", config[name], where / name)
            break
    retry = config.get("retry")
    if isinstance(retry, dict):
        table = dict(cast("dict[str, Any]", retry))
        for theirs, ours in (("backoff_s", "backoff"), ("max_backoff_s", "max_backoff")):
            if theirs in table:
                table[ours] = table.pop(theirs)
        retry = table
    if retry is not None:
        item.put("retry", cast("object", retry), where / "retry")
    return {"timeout_s", "timeout", "retry"}


def _kind(value: object) -> str:
    names = {"dict": "an object", "list": "a list", "str": "a text", "bool": "true or false", "NoneType": "nothing"}
    return names.get(type(value).__name__, "a number")


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
    """Where it is: `tools[3]`."""
    keys: Mapping[str, str]
    """By the key of the table: where that is, such as `tools[3].tool_calling_config.endpoint`."""
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
            raise at.error(f"'{name}' is here twice", f"The other one is {places[name]}.")
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
