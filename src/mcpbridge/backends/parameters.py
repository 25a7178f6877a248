"""The schemas of a function: what its parameters take, and what it returns, as pydantic reads the annotations."""

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Coroutine,
    Generator,
    Mapping,
)
from types import NoneType
from typing import Annotated, Any, Optional, cast, get_args, get_origin

from pydantic import ConfigDict, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from mcpbridge.backends.annotations import Unusable, admits_none
from mcpbridge.backends.events import Result
from mcpbridge.toolcalls import ToolResult

__all__ = ["Fields", "result_hint", "returned_schema"]

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


def returned_schema(hint: Any) -> Schema | None:
    """The schema of what is returned, where that is an object of which more is known than that."""
    hint = result_hint(hint)
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


def result_hint(hint: Any) -> Any:
    """What the result of a function with this annotation is, in the end."""
    found = _outcome_of(hint)
    if get_origin(found) is ToolResult:
        return get_args(found)[0]
    return Any if found is ToolResult else found


def _outcome_of(hint: Any) -> Any:
    """What comes out in the end of a function with this annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Awaitable, Coroutine):
        return arguments[-1] if arguments else None
    if origin is Generator:
        return arguments[2] if len(arguments) > 2 else None
    if origin in (AsyncGenerator, AsyncIterator, AsyncIterable):
        yielded = [arguments[0], *get_args(arguments[0])] if arguments else []
        return next((get_args(one)[0] for one in yielded if get_origin(one) is Result), None)
    return hint


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]
