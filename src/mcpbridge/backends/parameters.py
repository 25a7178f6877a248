"""The schemas of a function: what its parameters take, and what it returns, as pydantic reads the annotations."""

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
from types import NoneType
from typing import Annotated, Any, Optional, cast, get_args, get_origin

from pydantic import ConfigDict, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from mcpbridge.backends.annotations import Unusable, admits_none, plain
from mcpbridge.backends.events import Result
from mcpbridge.backends.typed_dicts import is_union, joined
from mcpbridge.toolcalls import ToolResult

__all__ = ["Fields", "result_hint", "returned_schema", "yielded_hint"]

Schema = dict[str, Any]


class Schemas(GenerateJsonSchema):
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in the base

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # it repeats the name


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
    `function`: tells whether what is `Iterable` are events or, as of any other function, a list.
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
