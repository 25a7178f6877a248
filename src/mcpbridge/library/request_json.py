"""What a program says in a request, as JSON; what is none is refused by its name, before anything is sent."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.backends.outputs import Misshapen, json_of
from mcpbridge.errors import ArgumentsRefused
from mcpbridge.toolcalls import ToolCall
from mcpbridge.wire.envelope import CONTEXT

__all__ = ["arguments_json", "encoded", "params_json"]

_encode = msgspec.json.Encoder(decimal_format="number").encode
"""Numbers that no Python number is came as `Decimal`, and go as they came."""


def encoded(value: object) -> bytes:
    """Arguments or a result as JSON, also what is nested deeply; models, dataclasses and so on as pydantic writes them.

    Raises:
        Misshapen: it is none.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):  # models, or no JSON at all
        return json_of(value)


def arguments_json(call: ToolCall[Any, Any]) -> Raw:
    """The arguments of a call.

    Raises:
        ArgumentsRefused: they are no JSON; names the one that is none.
    """
    try:
        return Raw(encoded(call.arguments))
    except Misshapen as error:
        arguments: object = call.arguments
        if isinstance(arguments, Mapping):
            _members(cast("Mapping[object, object]", arguments), f"the argument {{}} of {call.name[:200]}")
        raise ArgumentsRefused(f"The arguments of {call.name[:200]} are no JSON: {error}") from error


def params_json(params: Mapping[str, Any]) -> Raw:
    """The params of a request that are no plain JSON.

    Raises:
        ArgumentsRefused: they are none at all; names the member that is none.
    """
    said: dict[str, Any] = {}
    for name, value in params.items():
        if name == "arguments" and isinstance(value, Mapping):
            said[name] = _members(cast("Mapping[object, object]", value), "the argument {}")
        elif name == "_meta" and isinstance(value, Mapping):
            said[name] = _meta_json(cast("Mapping[str, object]", value))
        else:
            said[name] = _one(value, f"`{name}` of the request")
    return _one(said, "the request")


def _meta_json(meta: Mapping[str, object]) -> dict[str, Any]:
    return {
        name: _context_json(cast("Mapping[str, object]", value))
        if name == CONTEXT and isinstance(value, Mapping)
        else _one(value, f"`{name}` in the `_meta` of the request")
        for name, value in meta.items()
    }


def _context_json(context: Mapping[str, object]) -> Mapping[str, object]:
    metadata = context.get("metadata")
    if not isinstance(metadata, Mapping):
        return context
    return {**context, "metadata": _members(cast("Mapping[object, object]", metadata), "the metadata {}")}


def _members(values: Mapping[object, object], named: str) -> dict[object, Raw]:
    """Each as JSON; `named` says what one is, by its name."""
    return {name: _one(value, named.format(repr(name)[:200])) for name, value in values.items()}


def _one(value: object, what: str) -> Raw:
    if isinstance(value, Raw):
        return value
    try:
        return Raw(encoded(value))
    except Misshapen as error:
        raise ArgumentsRefused(f"{what[0].upper()}{what[1:]} is no JSON: {error}") from error
