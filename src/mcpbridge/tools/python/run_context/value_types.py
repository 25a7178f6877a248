"""What a context may hold: values of one type, checked against it, written as JSON and read again.

Models, dataclasses, typed dicts and plain JSON values are checked by pydantic, structs by msgspec.
"""

import dataclasses
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Protocol, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import typing_extensions
from msgspec import UNSET, Struct, UnsetType
from typing_extensions import get_type_hints as get_type_hints_of_typed_dict
from typing_extensions import is_typeddict

from mcpbridge.base.suggestions import nearest


def is_union(hint: object) -> bool:
    """`A | B`, or `Union[A, B]`."""
    return get_origin(hint) in (Union, UnionType)


def joined(hints: Sequence[Any]) -> Any:
    """The union of annotations, of which there is at least one."""
    union = hints[0]
    for hint in hints[1:]:
        union = Union[union, hint]  # noqa: UP007 - any annotations, not only types
    return union


def readable(hint: Any) -> Any:
    """The same annotation, with each TypedDict of `typing` in the form that pydantic reads before Python 3.12.

    Raises:
        TypeError: one leads back to itself; says what to do.
    """
    return _readable(hint, {})


def _readable(hint: Any, converted: dict[type, Any]) -> Any:
    if sys.version_info >= (3, 12):
        return hint
    if _is_plain_typed_dict(hint):
        return _typed_dict(hint, converted)
    arguments = get_args(hint)
    if not arguments or get_origin(hint) is typing.Literal:
        return hint
    if get_origin(hint) is Annotated:
        inner = _readable(arguments[0], converted)
        return Annotated[(inner, *hint.__metadata__)] if inner is not arguments[0] else hint
    readable = tuple([_readable(one, converted) for one in arguments])
    if all(new is old for new, old in zip(readable, arguments, strict=True)):
        return hint
    if is_union(hint):
        return joined(readable)
    return hint.copy_with(readable) if hasattr(hint, "copy_with") else get_origin(hint)[readable]


def _is_plain_typed_dict(hint: object) -> bool:
    return isinstance(hint, type) and type(hint).__module__ == "typing" and typing.is_typeddict(hint)


def _typed_dict(kind: Any, converted: dict[type, Any]) -> Any:
    if kind in converted:
        raise TypeError(f"{kind.__name__} leads back to itself: make it a TypedDict of `typing_extensions`")
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        is_marked = get_origin(hint) in (typing.Required, typing.NotRequired)
        inner = _readable(get_args(hint)[0] if is_marked else hint, {**converted, kind: None})
        is_required = get_origin(hint) is typing.Required if is_marked else name in kind.__required_keys__
        fields[name] = inner if is_required else typing_extensions.NotRequired[inner]
    readable = cast("Any", typing_extensions.TypedDict)(kind.__name__, fields)
    readable.__doc__ = kind.__doc__
    readable.__module__ = kind.__module__
    return readable


MOST_FAULTS = 5
"""Faults of a value that are reported."""


class Misfit(ValueError):
    """A value is not what its type allows; the message says where and why, without the value."""


class Shape:
    """Values of one type."""

    def __init__(self, kind: Any) -> None:
        """`kind`: the type; `dict` stands for any JSON object.

        Raises:
            Misfit: there is nothing that its values could be checked by.
        """
        self.kind: Any = dict[str, Any] if kind in (dict, Mapping) else kind
        try:
            self._form: _Form = _OfStructs(self.kind) if _has_struct(self.kind) else _OfModels(readable(self.kind))
        except Exception as error:  # types bring code of their own for this
            raise Misfit(f"{_called(kind)} has no schema: {_first_line(error)}") from error

    def written(self, value: object) -> bytes:
        """A value as JSON. What is no instance of the type, but fits it (an object for a model), is taken as one.

        That it fits is only sure when it was read again.

        Raises:
            Misfit: it does not fit, or is no JSON.
        """
        try:
            return self._form.written(value)
        except Exception as error:  # types bring code of their own for this
            raise Misfit(_fault_text(error)) from error

    def read(self, data: bytes) -> Any:
        """The value that was written down. Raises Misfit: it does not fit, as of another version of the type."""
        try:
            return self._form.read(data)
        except Exception as error:  # types bring code of their own for this
            raise Misfit(_fault_text(error)) from error

    def initial(self) -> Any:
        """What there is before anything was set: the type's own defaults, else None; UNSET where neither fits."""
        for make in (self._default, _none):
            try:
                return self.read(self.written(make()))
            except Exception:  # noqa: BLE001, S112 - then it needs values, which nobody has given yet
                continue
        return UNSET

    def merged(self, value: object, changes: Mapping[str, object]) -> object:
        """A value with some of its fields changed; not yet checked. `value`: may be UNSET or None, which have none.

        Raises:
            Misfit: it has no fields, or none of such a name.
        """
        kind: Any = type(value)
        known = _fields_of(self.kind if kind in (UnsetType, NoneType, dict) else kind)
        if known is None:
            raise Misfit(f"{_called(self.kind)} has no fields to change: set it as a whole")
        if known and (unknown := next((name for name in changes if name not in known), None)):
            close = nearest(unknown, known, limit=1)
            raise Misfit(f"there is no field `{unknown}`" + (f"; did you mean `{close[0]}`?" if close else ""))
        if isinstance(value, Struct):
            return msgspec.structs.replace(value, **changes)
        return {**_members(cast("Any", value)), **changes}

    def _default(self) -> object:
        kind = _bare(self.kind)
        if is_typeddict(kind) or (get_origin(kind) or kind) is Mapping:
            return {}
        return cast("Callable[[], object]", get_origin(kind) or kind)()


class _Form(Protocol):
    """How values of a type are written and read; both raise whatever is wrong."""

    def written(self, value: object) -> bytes: ...
    def read(self, data: bytes) -> Any: ...


class _OfModels:
    """By pydantic. Fields go by their own names, as aliases may differ between reading and writing."""

    def __init__(self, kind: Any) -> None:
        from pydantic import TypeAdapter

        self._adapter: Any = TypeAdapter(kind)

    def written(self, value: object) -> bytes:
        found = self._adapter.validate_python(value, by_name=True, by_alias=True)
        return self._adapter.dump_json(found, by_alias=False, round_trip=True, warnings="none")

    def read(self, data: bytes) -> Any:
        return self._adapter.validate_json(data, by_name=True, by_alias=False)


class _OfStructs:
    """By msgspec."""

    def __init__(self, kind: Any) -> None:
        self._decode = msgspec.json.Decoder(kind).decode

    def written(self, value: object) -> bytes:
        return msgspec.json.encode(value)

    def read(self, data: bytes) -> Any:
        return self._decode(data)


def _has_struct(kind: Any) -> bool:
    return (isinstance(kind, type) and issubclass(kind, Struct)) or any(map(_has_struct, get_args(kind)))


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _fields_of(kind: Any) -> Iterable[str] | None:
    """Names that a value of this type may have; empty: any, None: it has no fields."""
    kinds = [_bare(one) for one in (get_args(kind) if type(None) in get_args(kind) else (kind,))]
    found = [names for one in kinds if (names := _names(one)) is not None]
    return found[0] if found else None


def _names(kind: Any) -> Iterable[str] | None:
    if (fields := getattr(kind, "__struct_fields__", None)) is not None:
        return fields
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if field.init]
    if is_typeddict(kind):
        return get_type_hints_of_typed_dict(kind).keys()
    if (fields := getattr(kind, "model_fields", None)) is not None:
        return () if getattr(kind, "model_config", {}).get("extra") == "allow" else fields.keys()
    return () if kind is Any or (get_origin(kind) or kind) in (dict, Mapping) else None


def _members(value: Any) -> Mapping[str, object]:
    """Fields of a value by name; of UNSET and None none."""
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    fields: Iterable[str] = getattr(cast("Any", type(value)), "model_fields", ())
    extra: Mapping[str, object] | None = getattr(value, "model_extra", None)
    return {**{name: getattr(value, name) for name in fields}, **(extra or {})}


def _none() -> None:
    return None


def _fault_text(error: Exception) -> str:
    """What is wrong, without the values: they may be long, and secret."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return _first_line(error)
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [": ".join([*filter(None, [".".join(map(str, one["loc"]))]), one["msg"]]) for one in found[:MOST_FAULTS]]
    more = f" (and {len(found) - MOST_FAULTS} more)" if len(found) > MOST_FAULTS else ""
    return "; ".join(lines) + more


def _first_line(error: Exception) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:300]


def _called(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))
