"""The annotations of a function, resolved, in a form that pydantic takes."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from mcpbridge.backends.contexts import Context
from mcpbridge.backends.typed_dicts import is_union, readable
from mcpbridge.context import CallContext

__all__ = ["Unusable", "admits_none", "hints_of", "is_context", "kept_type", "plain"]


class Unusable(Exception):
    """No tool can be made of it; the message says why, and what to do."""


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind partial applications and objects that can be called: where its annotations stand."""
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


def kept_type(hint: object) -> Any:
    """What `T` is in `Context[T]`, perhaps or None; None: it is no such annotation."""
    if is_union(hint):
        return next((found for one in get_args(hint) if (found := kept_type(one)) is not None), None)
    if get_origin(hint) is Context:
        return get_args(hint)[0]
    return dict if hint is Context else None


def admits_none(hint: object) -> bool:
    """Whether None is one of the values."""
    if get_origin(hint) is Annotated:
        return admits_none(get_args(hint)[0])
    return hint in (None, type(None), Any, object) or (is_union(hint) and any(map(admits_none, get_args(hint))))
