"""How parameters are written in paths, queries, headers and cookies (OpenAPI 3.1, style values). Pure.

What a value is made of is encoded piece by piece, so a comma or an ampersand within an argument separates nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from msgspec import Struct

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.http.request import header_text, query_text, refuse_dots, segment, text_of

Place = Literal["path", "query", "header", "cookie"]

STYLES: Mapping[str, frozenset[str]] = {
    "path": frozenset({"simple", "label", "matrix"}),
    "query": frozenset({"form", "spaceDelimited", "pipeDelimited", "deepObject"}),
    "header": frozenset({"simple"}),
    "cookie": frozenset({"form"}),
}
DEFAULT_STYLES: Mapping[str, str] = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}

_BETWEEN = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_RESERVED = ":/?[]@!$'()*,;"
"""What `allowReserved` leaves as it is; not what ends a value: `&`, `=`, `+`, `#`."""


class Parameter(Struct, frozen=True):
    """One parameter of an operation."""

    argument: str
    """What it is called among the arguments of the tool."""
    name: str
    place: Place
    style: str
    explode: bool
    is_json: bool = False
    """It is written as JSON, whatever its style."""
    is_reserved: bool = False
    """Reserved characters stay as they are."""


def in_path(parameter: Parameter, value: Any) -> str:
    """What is in the path, encoded; one segment.

    Raises:
        ArgumentsRefused: it would lead elsewhere, or is empty.
    """
    name, value = parameter.argument, _as_json(parameter, value)
    pieces = [segment(one, name) for one in _texts(value, name)]
    if parameter.style == "label":
        written = "." + (_pairs(value, name, ".") if _is_table(parameter, value) else (".".join(pieces)))
    elif parameter.style == "matrix":
        written = _matrix(parameter, value, pieces)
    else:
        written = _pairs(value, name, ",") if _is_table(parameter, value) else ",".join(pieces)
    if not written:
        raise ArgumentsRefused(f"`{name}` is a part of the path and must not be empty")
    refuse_dots(written, name)
    return written


def in_query(parameter: Parameter, value: Any) -> Iterator[str]:
    """The pairs `name=value` that it makes, encoded."""
    argument, name, value = parameter.argument, query_text(parameter.name), _as_json(parameter, value)
    if parameter.style == "deepObject" and isinstance(value, Mapping):
        yield from _deep(name, cast("Mapping[str, Any]", value), argument)
    elif parameter.explode and isinstance(value, Mapping):
        for key, one in cast("Mapping[str, Any]", value).items():
            yield f"{query_text(text_of(key, argument))}={query_text(text_of(one, argument))}"
    elif parameter.explode and isinstance(value, list):
        for one in cast("list[Any]", value):
            yield f"{name}={_written(parameter, text_of(one, argument))}"
    else:
        between = _BETWEEN.get(parameter.style, ",")
        yield f"{name}={between.join(_written(parameter, one) for one in _texts(value, argument))}"


def in_header(parameter: Parameter, value: Any) -> str:
    """The value of the header."""
    value = _as_json(parameter, value)
    if _is_table(parameter, value):
        table = cast("Mapping[str, Any]", value)
        text = ",".join(f"{key}={text_of(one, parameter.argument)}" for key, one in table.items())
    else:
        text = ",".join(_texts(value, parameter.argument))
    return header_text(text, parameter.argument).strip(" \t")


def in_cookie(parameter: Parameter, value: Any) -> str:
    """The pair in the header `Cookie`, its value encoded: a semicolon would begin another one."""
    pieces = [query_text(one) for one in _texts(_as_json(parameter, value), parameter.argument)]
    return f"{parameter.name}={'%2C'.join(pieces)}"


def _as_json(parameter: Parameter, value: Any) -> Any:
    return encode(value).decode() if parameter.is_json else value


def _written(parameter: Parameter, text: str) -> str:
    if not parameter.is_reserved:
        return query_text(text)
    return "".join(one if one in _RESERVED else query_text(one) for one in text)


def _is_table(parameter: Parameter, value: Any) -> bool:
    return parameter.explode and isinstance(value, Mapping)


def _texts(value: Any, name: str) -> list[str]:
    """A value as the list of what it is made of."""
    if isinstance(value, list):
        return [text_of(one, name) for one in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return [text_of(one, name) for pair in table.items() for one in pair]
    return [text_of(value, name)]


def _pairs(value: Any, name: str, between: str) -> str:
    table = cast("Mapping[str, Any]", value)
    return between.join(f"{segment(key, name)}={segment(text_of(one, name), name)}" for key, one in table.items())


def _matrix(parameter: Parameter, value: Any, pieces: list[str]) -> str:
    name = query_text(parameter.name)
    if _is_table(parameter, value):
        return f";{_pairs(value, parameter.argument, ';')}"
    if parameter.explode and isinstance(value, list):
        return "".join(f";{name}={piece}" for piece in pieces)
    return f";{name}={','.join(pieces)}"


def _deep(name: str, table: Mapping[str, Any], argument: str) -> Iterator[str]:
    for key, value in table.items():
        inner = f"{name}%5B{query_text(text_of(key, argument))}%5D"
        if isinstance(value, Mapping):
            yield from _deep(inner, cast("Mapping[str, Any]", value), argument)
        elif isinstance(value, list):
            for one in cast("list[Any]", value):
                yield f"{inner}={query_text(text_of(one, argument))}"
        else:
            yield f"{inner}={query_text(text_of(value, argument))}"
