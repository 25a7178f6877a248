"""The arguments of `recall`, read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from mcpbridge.results.exact_json import NotReadable, parse_json
from mcpbridge.results.frame import URI
from mcpbridge.results.query import Query, QueryRefused, read_query
from mcpbridge.results.query_refused import clipped
from mcpbridge.results.query_request import loosened
from mcpbridge.wire.body import Body

__all__ = ["Wanted", "wanted_of"]

MOST = 20
"""Handles of one call."""

_QUERIES = ("path", "where", "select", "sort", "aggregate", "group_by", "find", "regex", "lines", "_transform")
_TRUE, _FALSE = (True, "true", "True", 1), (None, False, "false", "False", 0, "")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call wants."""

    handles: tuple[tuple[str, str], ...] = ()
    """Results to read, each with a JSON pointer into it, or an empty one."""
    query: Query = field(default_factory=Query)
    transform: str = ""
    forget: tuple[str, ...] = ()
    search: str = ""


def wanted_of(params: Body) -> Wanted:
    """Read the params of the call.

    Raises:
        QueryRefused: what is wrong with which argument.
    """
    arguments = _arguments(params)
    given = arguments.get("handle", arguments.get("handles"))
    handles = tuple(_handle(text) for text in _texts("handle", given)) if given not in (None, "") else ()
    forget = arguments.get("delete")
    if forget not in _FALSE:
        chosen = handles if forget in _TRUE else [_handle(text) for text in _texts("delete", forget)]
        named = [handle for handle, _ in chosen]
        if not named:
            raise QueryRefused("delete: the handles to forget, such as those that recall without arguments lists")
        return Wanted(forget=tuple(named))
    search = arguments.get("search")
    if search is not None and not isinstance(search, str):
        raise QueryRefused("search: words to look for in tools, arguments and headlines of kept results")
    asked = [name for name in _QUERIES if arguments.get(name) not in (None, "")]
    if not handles and asked:
        raise QueryRefused(f"{asked[0]}: of which result? Give its handle; recall without arguments lists those kept.")
    if arguments.get("list") in _TRUE or search:
        handles = ()
    transform = arguments.get("_transform") or ""
    if not isinstance(transform, str):
        raise QueryRefused("_transform: a JavaScript expression in a string")
    return Wanted(handles, read_query(arguments), transform, search=search or "")


def _arguments(params: Body) -> Mapping[str, Any]:
    try:
        inner = params.inner("arguments")
        found: Any = parse_json(str(memoryview(inner.data), "utf-8")) if inner is not None else {}
    except (NotReadable, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise QueryRefused(f"arguments: {error}") from None
    return cast("dict[str, Any]", found)


def _texts(name: str, value: Any) -> list[str]:
    found: Any = loosened(value)
    if isinstance(found, dict):
        found = cast("dict[str, Any]", found).get("$ref")
    if isinstance(found, str):
        found = re.split(r"[\s,]+", found)
    values = cast("list[Any]", found) if isinstance(found, list) else []
    texts = [text for text in values if isinstance(text, str) and text]
    if not texts or len(texts) > MOST:
        raise QueryRefused(f"{name}: a handle, or a list of at most {MOST}; not {clipped(repr(cast('object', value)))}")
    return texts


def _handle(text: str) -> tuple[str, str]:
    """The handle in a text or URI, and the JSON pointer behind it."""
    handle, _, pointer = text.strip().removeprefix(URI).partition("#")
    return handle.strip("[]{}`'\" /").lower(), pointer.strip()
