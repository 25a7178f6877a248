"""From a Python function to a tool: schemas from its signature and docstring, and its arguments from JSON.

The schema says what the annotations say, by pydantic, which also makes the arguments: dates, enums, models and so on
arrive as what they are annotated. Descriptions come from `Annotated[..., Field(description=...)]`, else from the
docstring (Google, NumPy or Sphinx style). A parameter annotated as `CallContext` or `Context[...]` gets the context of
the call and is no part of the schema. A schema given by hand is used as it is; arguments then arrive as the JSON values
that they are.
"""

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from types import NoneType
from typing import Annotated, Any, Optional, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.core.context import CallContext
from mcpbridge.core.tool_calls_and_results import ToolResult
from mcpbridge.tools.python.output import Result
from mcpbridge.tools.python.run_context.context import Context
from mcpbridge.tools.python.run_context.value_types import Misfit, Shape, is_union, joined, readable


class Unusable(Exception):
    """No tool can be made of it; the message says why, and what to do."""


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind partial applications and objects that can be called: where its annotations are."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return function.__init__
    if hasattr(function, "__code__") or hasattr(function, "__func__"):
        return function
    wrapped = getattr(function, "__wrapped__", None)  # an object that a decorator put in the place of a function
    return plain(wrapped) if callable(wrapped) else type(function).__call__


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Annotations by parameter, and that of the result as `return`.

    Raises:
        Unusable: one of them names what is not there.
    """
    target = plain(function)
    try:
        try:
            hints = get_type_hints(target, include_extras=True)
        except NameError:  # imported for type checkers alone
            hints = get_type_hints(
                target, localns={"CallContext": CallContext, "Context": Context}, include_extras=True
            )
    except NameError as error:
        raise Unusable(f"an annotation cannot be resolved: {error}. Import it outside of TYPE_CHECKING.") from error
    except Exception as error:  # annotations are code, which may raise anything
        raise Unusable(f"an annotation cannot be resolved: {type(error).__name__}: {error}") from error
    try:
        return {name: readable(hint) for name, hint in hints.items()}
    except TypeError as error:
        raise Unusable(str(error)) from error


def is_context(hint: object) -> bool:
    """`CallContext` or `Context[...]`, or that or None."""
    if is_union(hint):
        return any(map(is_context, get_args(hint)))
    return hint is CallContext or hint is Context or get_origin(hint) is Context


def context_type(hint: object) -> Any:
    """What `T` is in `Context[T]`, perhaps or None; None: it is no such annotation."""
    if is_union(hint):
        return next((found for one in get_args(hint) if (found := context_type(one)) is not None), None)
    if get_origin(hint) is Context:
        return get_args(hint)[0]
    return dict if hint is Context else None


def admits_none(hint: object) -> bool:
    """Whether None is one of the values."""
    if get_origin(hint) is Annotated:
        return admits_none(get_args(hint)[0])
    return hint in (None, type(None), Any, object) or (is_union(hint) and any(map(admits_none, get_args(hint))))


def documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description, and those of parameters by name, of a docstring in any usual style."""
    while isinstance(function, partial):
        function = function.func
    text = inspect.getdoc(function)
    if not text or text.startswith(f"{getattr(function, '__name__', '')}("):  # a dataclass without one of its own
        return "", {}
    from docstring_parser import ParseError, parse

    try:
        parsed = parse(text)
    except (ParseError, ValueError, IndexError):
        return text, {}
    parts = [part.strip() for part in (parsed.short_description, parsed.long_description) if part and part.strip()]
    parameters = {one.arg_name.lstrip("*"): " ".join((one.description or "").split()) for one in parsed.params}
    return "\n\n".join(parts), {name: said for name, said in parameters.items() if said}


Schema = dict[str, Any]


class Schemas(GenerateJsonSchema):
    """JSON schemas without the titles that only repeat the names."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in the base

    def field_title_should_be_set(self, schema: Any) -> bool:
        """No: it repeats the name."""
        return False


class Fields:
    """The parameters as a pydantic model. Its fields have numbers, so that no name of a parameter is in the way."""

    def __init__(
        self, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], described: Mapping[str, str]
    ) -> None:
        self.by_field: dict[str, inspect.Parameter] = {}
        self.has_own_default: set[str] = set()
        """Names of parameters whose default is a pydantic `Field`: Python would pass that itself."""
        fields: dict[str, Any] = {}
        extra, rest = "forbid", None
        for name, parameter in parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise Unusable(f"`*{name}` has no name by which a tool could take it: make it a list")
            if parameter.kind is parameter.VAR_KEYWORD:
                extra, rest = "allow", hints.get(name)
                continue
            field = f"p{len(fields)}"
            self.by_field[field] = parameter
            fields[field] = self._field(parameter, hints.get(name, Any), described.get(name))
        if rest not in (None, Any):
            fields["__pydantic_extra__"] = (dict[str, rest], Field(init=False))
        config = ConfigDict(extra=cast("Any", extra), arbitrary_types_allowed=False)
        try:
            self.model = create_model("arguments", __config__=config, **fields)
            self._schema = self.model.model_json_schema(by_alias=True, schema_generator=Schemas)
        except Exception as error:  # types bring code of their own for this
            raise Unusable(f"its parameters have no JSON schema: {_first_line(error)}") from error

    def _field(self, parameter: inspect.Parameter, hint: Any, described: str | None) -> tuple[Any, Any]:
        default = parameter.default
        settings: dict[str, Any] = {"alias": parameter.name}
        if described and not _is_described(hint):
            settings["description"] = described
        if isinstance(default, FieldInfo):
            self.has_own_default.add(parameter.name)
            return Annotated[hint, Field(**settings)], default
        if default is None and not admits_none(hint):
            hint = Optional[hint]  # noqa: UP045 - any annotation, not only a type
        return hint, Field(**settings) if default is parameter.empty else Field(default=default, **settings)

    def schema(self) -> Schema:
        """The JSON schema of all of them."""
        found = dict(self._schema)
        found.pop("title", None)
        return found


def _is_described(hint: Any) -> bool:
    metadata: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    return any(isinstance(one, FieldInfo) and one.description for one in metadata)


def returned_schema(hint: Any, function: Callable[..., Any] | None = None) -> Schema | None:
    """The schema of what is returned, where that is an object of which more is known than that."""
    hint = result_hint(hint, function)
    if hint in (None, NoneType, Any, object, inspect.Signature.empty):
        return None
    try:
        schema = TypeAdapter(hint).json_schema(mode="serialization", schema_generator=Schemas)
    except Exception:  # noqa: BLE001 - whatever it is, it is no model: results then go without a schema
        return None
    target = schema
    if (reference := schema.get("$ref", "")).startswith("#/$defs/"):
        target = schema["$defs"].get(reference.removeprefix("#/$defs/"), {})
    if target.get("type") != "object" or not (target.get("properties") or isinstance(_others(target), dict)):
        return None
    schema.pop("title", None)
    return {"type": "object", **schema}


def _others(schema: Schema) -> object:
    return schema.get("additionalProperties") or None


def result_hint(hint: Any, function: Callable[..., Any] | None = None) -> Any:
    """What the result of a function with this annotation is, in the end; Any: the annotation does not say it.

    Of a generator that is what it returns, or what the `Result` is of that it yields, where the annotation names them.
    `function`: decides whether what is `Iterable` are events or, as of any other function, a list.
    """
    return _content_of(_outcome_of(hint, function))


def _content_of(hint: Any) -> Any:
    """Without `ToolResult`."""
    if get_origin(hint) is ToolResult:
        return get_args(hint)[0]
    if hint is ToolResult:
        return Any
    if is_union(hint) and any(ToolResult in (one, get_origin(one)) for one in get_args(hint)):
        return joined([_content_of(one) for one in get_args(hint)])
    return hint


def _outcome_of(hint: Any, function: Callable[..., Any] | None) -> Any:
    """What comes out in the end of a function with this annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated and _is_of_events(arguments[0], function):
        return _outcome_of(arguments[0], function)
    if origin in (Awaitable, Coroutine):
        return arguments[-1] if arguments else None
    if _is_of_events(hint, function):
        returned = arguments[2] if origin is Generator and len(arguments) > 2 else None
        if returned not in (None, NoneType):
            return returned
        otherwise = None if origin is Generator else Any
        return next((get_args(one)[0] for one in _members(hint) if get_origin(one) is Result), otherwise)
    return list[arguments[0]] if origin is Iterable and arguments else hint


def yielded_hint(hint: Any, function: Callable[..., Any] | None = None) -> Any:
    """What a function with this annotation yields, without a `Result`; Any: anything, or it yields nothing."""
    if get_origin(hint) is Annotated:
        return yielded_hint(get_args(hint)[0], function)
    if not _is_of_events(hint, function):
        return Any
    events = [one for one in _members(hint) if Result not in (one, get_origin(one))]
    return Any if not events or any(one in (Any, object) for one in events) else joined(events)


def _is_of_events(hint: Any, function: Callable[..., Any] | None) -> bool:
    if (get_origin(hint) or hint) is Iterable:
        return function is not None and inspect.isgeneratorfunction(inspect.unwrap(plain(function)))
    return (get_origin(hint) or hint) in _OF_EVENTS


_OF_EVENTS = (Generator, Iterator, AsyncGenerator, AsyncIterator, AsyncIterable)


def _members(hint: Any) -> Sequence[Any]:
    """The types that are yielded, as a union has them."""
    arguments = get_args(hint)
    return () if not arguments else get_args(arguments[0]) if is_union(arguments[0]) else arguments[:1]


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]


MOST_FAULTS = 5
"""Faults of arguments that are reported."""

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
        raise Unusable(f"its parameters cannot be read: {error}. Give it an `input_schema`.") from error
    hints = hints_of(function)
    described, of_parameters = documented(function)
    contexts = frozenset(name for name in parameters if is_context(hints.get(name)))
    keeps = _context_shape([hints[name] for name in parameters if name in contexts])
    taken = {name: parameter for name, parameter in parameters.items() if name not in contexts}
    returned = output_schema if output_schema is not None else returned_schema(hints.get("return"), function)
    all_at_once = _takes_all_at_once(taken, hints, input_schema)
    if input_schema is not None or all_at_once:
        bind = _binding_plainly(parameters, contexts, all_at_once)
        return Signature(described, input_schema or ANY_OBJECT, returned, bind, keeps)
    fields = Fields(taken, hints, of_parameters)
    return Signature(described, fields.schema(), returned, _binding(fields, parameters, contexts), keeps)


def _context_shape(hints: Sequence[Any]) -> Shape | None:
    """What its contexts keep, which are annotated so."""
    kinds = [kind for hint in hints if (kind := context_type(hint)) is not None]
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
    told = [f"{'.'.join(str(part) for part in one['loc']) or 'arguments'}: {one['msg']}" for one in found[:MOST_FAULTS]]
    more = f" (and {len(found) - MOST_FAULTS} more)" if len(found) > MOST_FAULTS else ""
    return f"Invalid arguments: {'; '.join(told)}{more}"
