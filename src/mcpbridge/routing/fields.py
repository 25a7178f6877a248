"""What of a tool's texts is looked at, by the fields that weigh differently.

Upstreams are not trusted: descriptions may be megabytes and schemas any JSON value, however deep. What is looked at is
capped here, and nothing but strings in the expected places is read.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from mcpbridge.routing.tool_text import ServerText, ToolText

__all__ = ["ServerFields", "ToolFields", "server_fields", "tool_fields"]

_NAME = 200
_DESCRIPTION = 4000
_PARAMETER = 400
_SERVER = 1000
_ENUM = 40
"""Characters of one text that are looked at."""
_PARAMETERS = 64
_CHOICES = 16
"""How many are looked at in one schema, and of one parameter."""
_DEPTH = 3
"""Levels of objects in objects."""


class ServerFields(NamedTuple):
    """The texts of a server."""

    name: str
    """Name, title and tags."""
    description: str


class ToolFields(NamedTuple):
    """The texts of a tool."""

    name: str
    title: str
    """Title and tags."""
    description: str
    parameters: str
    """Names of parameters."""
    details: str
    """Descriptions of parameters, and the values that they may have."""


def server_fields(server: ServerText) -> ServerFields:
    """What is looked at of a server."""
    name, title = server.name[:_NAME], server.title[:_NAME]
    return ServerFields(" ".join((name, title, *_some(server.tags))), server.description[:_SERVER])


def tool_fields(tool: ToolText) -> ToolFields:
    """What is looked at of a tool."""
    names: list[str] = []
    details: list[str] = []
    for name, detail in _parameters(tool.schema):
        names.append(name)
        details += detail
    name = tool.name[:_NAME]
    title = "" if tool.title == tool.name else tool.title[:_NAME]
    return ToolFields(
        name,
        " ".join((title, *_some(tool.tags))),
        tool.description[:_DESCRIPTION],
        " ".join(names),
        " ".join(details),
    )


def _some(texts: tuple[str, ...]) -> list[str]:
    return [text[:_ENUM] for text in texts[:_CHOICES]]


def _parameters(schema: Mapping[str, Any] | None) -> Iterator[tuple[str, list[str]]]:
    """Name, and texts, of the parameters of a schema, outermost first."""
    level: list[Mapping[str, Any]] = [] if schema is None else [schema]
    left = _PARAMETERS
    for _ in range(_DEPTH):
        below: list[Mapping[str, Any]] = []
        for parent in level:
            for name, one in _members(parent.get("properties"))[:left]:
                left -= 1
                yield name[:_NAME], _texts(one)
                below += _nested(one)
        level = below[:left]
        if not level:
            return


def _members(value: object) -> list[tuple[str, object]]:
    if not isinstance(value, Mapping):
        return []
    some: list[tuple[str, object]] = []
    for name, one in cast("Mapping[Any, object]", value).items():
        if len(some) == _PARAMETERS:
            break
        some.append((str(name)[:_NAME], one))
    return some


def _texts(parameter: object) -> list[str]:
    if not isinstance(parameter, Mapping):
        return []
    one = cast("Mapping[str, object]", parameter)
    found = [value[:_PARAMETER] for key in ("title", "description") if isinstance(value := one.get(key), str)]
    for holder in (one, one.get("items")):
        if isinstance(holder, Mapping) and isinstance(
            choices := cast("Mapping[str, object]", holder).get("enum"), list
        ):
            some = cast("list[object]", choices)[:_CHOICES]
            found += [choice[:_ENUM] for choice in some if isinstance(choice, str)]
    return found


def _nested(parameter: object) -> list[Mapping[str, Any]]:
    """Objects whose members are parameters too: the value itself, or the items of a list."""
    if not isinstance(parameter, Mapping):
        return []
    one = cast("Mapping[str, Any]", parameter)
    items = one.get("items")
    return [one, cast("Mapping[str, Any]", items)] if isinstance(items, Mapping) else [one]
