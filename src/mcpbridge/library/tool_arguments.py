"""From the arguments of a Python call to the JSON values, by name, that a tool is called with."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from mcpbridge.errors import ArgumentsRefused

__all__ = ["by_name"]


def by_name(
    function: Callable[..., Any], schema: Mapping[str, Any]
) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """Makes the arguments of tool calls of those of Python calls. `schema`: of the tool's arguments.

    What is made raises TypeError where the function does not take what is given, and ArgumentsRefused where that is no
    JSON. What is left out stays out.
    """
    from mcpbridge.backends.annotations import hints_of, is_context

    hints = hints_of(function)
    taken = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if not is_context(hints.get(name))
    }
    # Positional-only parameters before others, as they stood: a context may have been the first of them.
    signature = inspect.Signature(list(taken.values()))
    encoders = {name: _encoder(name, hints[name]) for name in taken if name in hints}
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    is_whole = len(taken) == 1 and not taken.keys() & properties.keys()

    def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        given = signature.bind(*args, **kwargs).arguments
        found: dict[str, Any] = {}
        for name, value in given.items():
            encode = encoders.get(name) or _plainly(name)
            if taken[name].kind is inspect.Parameter.VAR_KEYWORD:
                found |= {key: encode(one) for key, one in value.items()}
            elif is_whole:  # its one parameter stands for all of them
                found |= encode(value)
            else:
                found[name] = encode(value)
        return found

    return arguments


def _encoder(name: str, hint: Any) -> Callable[[Any], Any]:
    """Writes a value as its annotation says, so that it arrives as what it was."""
    adapter: Any = None

    def encode(value: Any) -> Any:
        nonlocal adapter
        from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

        if adapter is None:
            try:
                adapter = TypeAdapter(hint)
            except (PydanticSchemaGenerationError, PydanticUserError):
                adapter = False
        if adapter is False:
            return _plainly(name)(value)
        from pydantic_core import PydanticSerializationError

        try:
            # A value of another type is written as it is, and refused when the call is made.
            return adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise ArgumentsRefused(f"`{name}` is no JSON: {error}") from None

    return encode


def _plainly(name: str) -> Callable[[Any], Any]:
    def encode(value: Any) -> Any:
        from mcpbridge.backends.outputs import Misshapen, json_of

        try:
            return msgspec.json.decode(json_of(value))
        except Misshapen as error:
            raise ArgumentsRefused(f"`{name}`: {error}") from None

    return encode
