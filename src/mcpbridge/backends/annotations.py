"""The annotations of a function, resolved, in a form that pydantic takes."""

import sys
import typing
from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import typing_extensions

from mcpbridge.context import CallContext

__all__ = ["Unusable", "admits_none", "hints_of", "is_context", "plain"]


class Unusable(Exception):
    """No tool can be made of it; the message says why, and what to do."""


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind partial applications and objects that can be called: where its annotations stand."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return function.__init__
    return function if hasattr(function, "__code__") or hasattr(function, "__func__") else type(function).__call__


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
            hints = get_type_hints(target, localns={"CallContext": CallContext}, include_extras=True)
    except NameError as error:
        raise Unusable(f"an annotation cannot be resolved: {error}. Import it outside of TYPE_CHECKING.") from error
    except Exception as error:  # annotations are code, which may raise anything
        raise Unusable(f"an annotation cannot be resolved: {type(error).__name__}: {error}") from error
    return {name: _readable(hint, {}) for name, hint in hints.items()}


def is_context(hint: object) -> bool:
    """`CallContext`, or that or None."""
    return hint is CallContext or (_is_union(hint) and CallContext in get_args(hint))


def admits_none(hint: object) -> bool:
    """Whether None is one of the values."""
    if get_origin(hint) is Annotated:
        return admits_none(get_args(hint)[0])
    return hint in (None, type(None), Any, object) or (_is_union(hint) and any(map(admits_none, get_args(hint))))


def _is_union(hint: object) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _readable(hint: Any, made: dict[type, Any]) -> Any:
    """The same annotation, with each TypedDict of `typing` in the form that pydantic reads before Python 3.12."""
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
    if _is_union(hint):
        return _union(readable)
    return hint.copy_with(readable) if hasattr(hint, "copy_with") else get_origin(hint)[readable]


def _union(hints: tuple[Any, ...]) -> Any:
    joined = hints[0]
    for hint in hints[1:]:
        joined = Union[joined, hint]  # noqa: UP007 - any annotations, not only types
    return joined


def _is_plain_typed_dict(hint: object) -> bool:
    return isinstance(hint, type) and type(hint).__module__ == "typing" and typing.is_typeddict(hint)


def _typed_dict(kind: Any, made: dict[type, Any]) -> Any:
    if kind in made:
        raise Unusable(f"{kind.__name__} leads back to itself: make it a TypedDict of `typing_extensions`")
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
