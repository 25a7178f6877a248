"""Schemas that a program writes by hand: as a Python type, as the name of a JSON type, or as a JSON Schema.

A value declared with a Python type reaches the handler as that type; any other as the JSON value that it is.
"""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.base.errors import ArgumentsRefused, ConfigError
from mcpbridge.base.suggestions import nearest
from mcpbridge.core.context import CallContext
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.python.function import FunctionTool
from mcpbridge.tools.python.signature import Arguments, decoded

Schema = dict[str, Any]

JSON_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_MEANT = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}


class Stated(Struct, frozen=True):
    """What was said of a value."""

    schema: Schema
    adapter: Any = None
    """Reads values of a Python type, a pydantic `TypeAdapter`; None: they stay JSON values."""


def stated(given: object, key: str, mode: Literal["validation", "serialization"] = "validation") -> Stated:
    """The schema of what was said. `key`: where, for errors.

    Raises:
        ConfigError: it is no type, or no schema.
    """
    if isinstance(given, str):
        if given not in JSON_TYPES:
            near = _MEANT.get(given) or next(iter(nearest(given, JSON_TYPES, limit=1)), "")
            hint = f"Did you mean {near!r}?" if near else f"There are {', '.join(JSON_TYPES)}, or give a Python type."
            raise ConfigError(f"{given!r} is no type", key=key, hint=hint)
        return Stated({"type": given})
    if isinstance(given, Mapping):
        return Stated(checked(dict(cast("Mapping[str, Any]", given)), key))
    return _of_type(given, key, mode)


def _of_type(given: object, key: str, mode: Literal["validation", "serialization"]) -> Stated:
    from pydantic import TypeAdapter

    from mcpbridge.tools.python.run_context.value_types import readable
    from mcpbridge.tools.python.signature import Schemas

    try:
        adapter = TypeAdapter[Any](readable(given))
        schema = adapter.json_schema(mode=mode, schema_generator=Schemas)
    except Exception as error:  # types bring code of their own for this
        shown = str(error).partition("\n")[0][:300]
        raise ConfigError(f"{given!r} is no type that a JSON Schema can be made of: {shown}", key=key) from error
    schema.pop("title", None)
    return Stated(schema, adapter)


def checked(schema: Schema, key: str) -> Schema:
    """The same schema.

    Raises:
        ConfigError: it is none.
    """
    from mcpbridge.tools.python.output import check_of

    try:
        check_of(schema)
    except ValueError as error:
        raise ConfigError(f"this is no JSON Schema: {error}", key=key) from error
    return schema


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a function that are no context."""
    from mcpbridge.tools.python.signature import hints_of, is_context

    hints = hints_of(function)
    parameters = inspect.signature(function).parameters
    return {name: parameter for name, parameter in parameters.items() if not is_context(hints.get(name))}


def whole_parameter(function: Callable[..., Any], schema: Mapping[str, Any], kind: object = None) -> str:
    """The one parameter that stands for all arguments; empty: each has its own. `kind`: the type that they are of."""
    from mcpbridge.tools.python.signature import hints_of

    taken = parameters_of(function)
    if len(taken) != 1:
        return ""
    ((name, parameter),) = taken.items()
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or name in schema.get("properties", ()):
        return ""
    hint = hints_of(function).get(name, Any)
    is_plain = hint is Any or getattr(hint, "__origin__", hint) in (dict, Mapping)
    return name if is_plain or (kind is not None and hint is kind) else ""


def refuse_misfit(name: str, function: Callable[..., Any], schema: Mapping[str, Any], kind: object = None) -> None:
    """Refuse a handler that cannot be called with the arguments that a schema allows.

    Raises:
        ConfigError: it does not take one of them, or needs another.
    """
    try:
        taken = parameters_of(function)
    except (TypeError, ValueError):  # its parameters cannot be told
        return
    if whole_parameter(function, schema, kind):
        return
    said, required = set(schema.get("properties", ())), set(schema.get("required", ()))
    takes_all = any(one.kind is one.VAR_KEYWORD for one in taken.values())
    told = ", ".join(taken) or "none"
    for one in sorted(said - taken.keys()):
        if not takes_all:
            raise ConfigError(f"the handler does not take the parameter {one!r}; it takes {told}", key=name)
    for one, parameter in taken.items():
        is_needed = parameter.default is parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise ConfigError(f"the handler takes `*{one}`, and arguments of tools have names", key=name)
        if parameter.kind is parameter.VAR_KEYWORD or not is_needed or one in required:
            continue
        if one in said and "default" in schema["properties"][one]:
            continue  # what is left out gets that
        why = "may be left out" if one in said else "is no parameter of the tool"
        raise ConfigError(f"the handler needs {one!r}, which {why}", key=name, hint="Give it a default in both.")


def without_hint(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """What looks like the function, but does not say of what type this parameter is; it is never called."""
    from mcpbridge.tools.python.signature import hints_of

    def seen(*_: object, **__: object) -> object:
        raise NotImplementedError

    seen.__doc__ = inspect.getdoc(function)
    seen.__name__ = str(getattr(function, "__name__", type(function).__name__))
    seen.__annotations__ = {key: hint for key, hint in hints_of(function).items() if key != name}
    seen.__wrapped__ = function  # pyright: ignore[reportFunctionMemberAccess] - it tells whether it is a generator
    seen.__signature__ = inspect.signature(function)  # pyright: ignore[reportFunctionMemberAccess] - inspect reads it
    return seen


_NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})


def typed(tool: FunctionTool, adapters: Mapping[str, Any], defaults: Mapping[str, Any] = _NO_DEFAULTS) -> FunctionTool:
    """The same tool, whose function gets these parameters as the types that they were said to be.

    `defaults`: JSON values of parameters that are left out. Calls get most of them before; never None.
    """
    if not adapters and not defaults:
        return tool
    inner = tool.signature.bind
    try:
        parameters = inspect.signature(tool.function).parameters
        whole = whole_parameter(tool.function, tool.signature.input_schema)
    except (TypeError, ValueError):  # its parameters cannot be told, so all are named
        parameters, whole = dict[str, inspect.Parameter](), ""
    only = [name for name, one in parameters.items() if one.kind is one.POSITIONAL_ONLY]

    def converted(name: str, value: Any) -> Any:
        if name in adapters:
            return read(adapters[name], name, value)
        return {key: converted(key, one) for key, one in value.items()} if name == whole else value

    def bind(raw: bytes, context: CallContext | None) -> Arguments:
        bound = inner(encode({**defaults, **decoded(raw)}) if defaults else raw, context)
        named = {name: converted(name, one) for name, one in bound.named.items()}
        places = zip(only, bound.positional, strict=False)  # those behind may be left out
        return Arguments(tuple(converted(name, one) for name, one in places), named)

    return replace(tool, signature=replace(tool.signature, bind=bind))


def read(adapter: Any, name: str, value: object) -> Any:
    """A JSON value as the type that it is of.

    Raises:
        ArgumentsRefused: it is not.
    """
    from pydantic import ValidationError

    try:
        return adapter.validate_json(encode(value))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        at = ".".join(str(part) for part in (name, *found["loc"]) if part != "")
        raise ArgumentsRefused(f"Invalid arguments: {at}: {found['msg']}") from None
