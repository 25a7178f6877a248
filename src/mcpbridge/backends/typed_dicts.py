"""Typed dicts in annotations, in the form that pydantic takes."""

import sys
import typing
from collections.abc import Sequence
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import typing_extensions

__all__ = ["is_union", "joined", "readable"]


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


def _readable(hint: Any, made: dict[type, Any]) -> Any:
    if sys.version_info >= (3, 12):
        return hint
    if _is_plain_typed_dict(hint):
        return _typed_dict(hint, made)
    arguments = get_args(hint)
    if not arguments or get_origin(hint) is typing.Literal:
        return hint
    if get_origin(hint) is Annotated:
        inner = _readable(arguments[0], made)
        return Annotated[(inner, *hint.__metadata__)] if inner is not arguments[0] else hint
    readable = tuple([_readable(one, made) for one in arguments])
    if all(new is old for new, old in zip(readable, arguments, strict=True)):
        return hint
    if is_union(hint):
        return joined(readable)
    return hint.copy_with(readable) if hasattr(hint, "copy_with") else get_origin(hint)[readable]


def _is_plain_typed_dict(hint: object) -> bool:
    return isinstance(hint, type) and type(hint).__module__ == "typing" and typing.is_typeddict(hint)


def _typed_dict(kind: Any, made: dict[type, Any]) -> Any:
    if kind in made:
        raise TypeError(f"{kind.__name__} leads back to itself: make it a TypedDict of `typing_extensions`")
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        is_marked = get_origin(hint) in (typing.Required, typing.NotRequired)
        inner = _readable(get_args(hint)[0] if is_marked else hint, {**made, kind: None})
        is_required = get_origin(hint) is typing.Required if is_marked else name in kind.__required_keys__
        fields[name] = inner if is_required else typing_extensions.NotRequired[inner]
    readable = cast("Any", typing_extensions.TypedDict)(kind.__name__, fields)
    readable.__doc__ = kind.__doc__
    readable.__module__ = kind.__module__
    return readable
