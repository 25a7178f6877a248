"""From a Python function to a tool: schemas from its signature and docstring, and its arguments from JSON.

The schema says what the annotations say, by pydantic, which also makes the arguments: dates, enums, models and so on
arrive as what they are annotated. Descriptions come from `Annotated[..., Field(description=...)]`, else from the
docstring (Google, NumPy or Sphinx style). A parameter annotated as `CallContext` or `Context[...]` gets the context of
the call and is no part of the schema. A schema given by hand stands as it is; arguments then arrive as the JSON values
that they are.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_origin

import msgspec
from msgspec import Struct
from pydantic import ValidationError

from mcpbridge.backends.annotations import Unusable, hints_of, is_context, kept_type
from mcpbridge.backends.context_shapes import Misfit, Shape
from mcpbridge.backends.docstrings import documented
from mcpbridge.backends.parameters import Fields, returned_schema
from mcpbridge.context import CallContext
from mcpbridge.errors import ArgumentsRefused

__all__ = ["Arguments", "Signature", "Unusable", "decoded", "signature_of"]

Schema = dict[str, Any]

MOST_TOLD = 5
"""Faults of arguments that are told."""

ANY_OBJECT: Schema = {"type": "object"}

_ONE_MAPPING = frozenset({"inputs", "input", "data", "payload", "arguments", "args", "params", "kwargs", "request"})
"""Names of a single parameter, without a type, that stands for all arguments."""


class Arguments(Struct, frozen=True):
    """What a function is called with."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any]


class Signature(Struct, frozen=True):
    """What is known of a function as a tool."""

    description: str
    input_schema: Schema
    output_schema: Schema | None
    """Of an object, or None."""
    bind: Callable[[bytes, CallContext | None], Arguments]
    """The arguments of a call from their JSON, which is an object. Raises ArgumentsRefused."""
    keeps: Shape | None = None
    """What it keeps over the calls of a run, if a parameter is a `Context[...]`: `bind` wants such a context then."""


def signature_of(
    function: Callable[..., Any], *, input_schema: Schema | None = None, output_schema: Schema | None = None
) -> Signature:
    """Look at a function; schemas given by hand replace those of its annotations.

    Raises:
        Unusable: it cannot be a tool.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        if input_schema is not None:
            return Signature(documented(function)[0], input_schema, output_schema, _by_name)
        raise Unusable(f"its parameters cannot be told: {error}. Give it an `input_schema`.") from error
    hints = hints_of(function)
    described, of_parameters = documented(function)
    contexts = frozenset(name for name in parameters if is_context(hints.get(name)))
    keeps = _kept([hints[name] for name in parameters if name in contexts])
    taken = {name: parameter for name, parameter in parameters.items() if name not in contexts}
    returned = output_schema if output_schema is not None else returned_schema(hints.get("return"), function)
    all_at_once = _takes_all_at_once(taken, hints, input_schema)
    if input_schema is not None or all_at_once:
        bind = _binding_plainly(parameters, contexts, all_at_once)
        return Signature(described, input_schema or ANY_OBJECT, returned, bind, keeps)
    fields = Fields(taken, hints, of_parameters)
    return Signature(described, fields.schema(), returned, _binding(fields, parameters, contexts), keeps)


def _kept(hints: Sequence[Any]) -> Shape | None:
    """What its contexts keep, which are annotated so."""
    kinds = [kind for hint in hints if (kind := kept_type(hint)) is not None]
    if any(kind != kinds[0] for kind in kinds):
        raise Unusable("it has two `Context[...]` parameters of different types: it keeps one value, so give it one")
    try:
        return Shape(kinds[0]) if kinds else None
    except Misfit as error:
        raise Unusable(f"its `Context[...]`: {error}") from error


def _takes_all_at_once(
    parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], schema: Schema | None
) -> str:
    """The name of the one parameter that gets the object of all arguments; empty: each has its own."""
    if len(parameters) != 1:
        return ""
    ((name, parameter),) = parameters.items()
    hint = hints.get(name, Any)
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return ""
    if hint is not Any and (get_origin(hint) or hint) not in (dict, Mapping):
        return ""
    properties = (schema or {}).get("properties")
    is_meant = name not in properties if isinstance(properties, dict) else name in _ONE_MAPPING
    return name if is_meant else ""


def _binding(
    fields: Fields, parameters: Mapping[str, inspect.Parameter], contexts: frozenset[str]
) -> Callable[[bytes, CallContext | None], Arguments]:
    def bind(raw: bytes, surroundings: CallContext | None) -> Arguments:
        try:
            model = fields.model.model_validate_json(raw)
        except ValidationError as error:
            raise ArgumentsRefused(_refusal(error)) from None
        given: dict[str, Any] = dict(model.model_extra or {})
        for field, parameter in fields.by_field.items():
            if field in model.model_fields_set or parameter.name in fields.has_own_default:
                given[parameter.name] = getattr(model, field)
        for name in contexts:
            given[name] = surroundings
        return _placed(given, parameters)

    return bind


def _binding_plainly(
    parameters: Mapping[str, inspect.Parameter], contexts: frozenset[str], all_at_once: str
) -> Callable[[bytes, CallContext | None], Arguments]:
    def bind(raw: bytes, surroundings: CallContext | None) -> Arguments:
        given: dict[str, Any] = decoded(raw)
        if all_at_once:
            given = {all_at_once: given}
        for name in contexts:
            given[name] = surroundings
        arguments = _placed(given, parameters)
        try:
            inspect.Signature(list(parameters.values())).bind(*arguments.positional, **arguments.named)
        except TypeError as error:
            raise ArgumentsRefused(f"The arguments do not fit the function: {error}") from None
        return arguments

    return bind


def _by_name(raw: bytes, _: CallContext | None) -> Arguments:
    """For a function whose parameters cannot be told."""
    return Arguments((), decoded(raw))


def decoded(raw: bytes) -> dict[str, Any]:
    """The arguments of a call as the JSON values that they are. Raises ArgumentsRefused: they are no object."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ArgumentsRefused(f"The arguments cannot be read: {error}") from None


def _placed(given: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> Arguments:
    """Those that have no name in calls stand in their order, as far as they are given."""
    only = [name for name, parameter in parameters.items() if parameter.kind is parameter.POSITIONAL_ONLY]
    positional: list[Any] = []
    for name in only:
        if name in given:
            positional.append(given[name])
        elif any(later in given for later in only[only.index(name) :]):
            positional.append(parameters[name].default)
    return Arguments(tuple(positional), {name: value for name, value in given.items() if name not in only})


def _refusal(error: ValidationError) -> str:
    """What is wrong, without the values: they may be long, and secret."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{'.'.join(str(part) for part in one['loc']) or 'arguments'}: {one['msg']}" for one in found[:MOST_TOLD]]
    more = f" (and {len(found) - MOST_TOLD} more)" if len(found) > MOST_TOLD else ""
    return f"Invalid arguments: {'; '.join(told)}{more}"
