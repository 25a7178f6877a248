"""Values on their way into a program and out of it. Pure.

Part of a program's process (`worker_main.py`): the standard library only.
"""

import json
from collections.abc import Iterable
from typing import Any, cast

DEEPEST = 40
"""Levels of a value that a program is given; what is further down it gets as JSON text."""

_NAME = "<python-input-0>"

Json = dict[str, Any]


def value_of(data: bytes, *, is_text_of_json: bool) -> Any:
    """What a program is given for a JSON value."""
    try:
        value = json.loads(data)
        if is_text_of_json and isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            try:
                value = json.loads(value)
            except ValueError:
                return _encodable(value)
    except (RecursionError, ValueError):  # ValueError: a number of more than 4,300 digits
        return data.decode("utf-8", "replace")
    return _encodable(value) if b"\\u" in data else _no_deeper(value)


def encode_value(value: Any) -> "tuple[str, str]":
    """The value of a program as text, and what that is: nothing, the text itself, or JSON."""
    if value is None:
        return "", ""
    if isinstance(value, str):
        hint = "; await it" if value.startswith("<coroutine ") else ""
        return value + hint, "text"
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain), "json"
    except (TypeError, ValueError, RecursionError):
        try:
            return str(value), "text"
        except (ValueError, RecursionError):
            return "[a value that cannot be shown: nested too deep, or a number too long]", "text"


def encode_error(error: Any) -> "dict[str, str]":
    """An error of the interpreter, as a frame."""
    try:
        what, _, message = error.display("type-msg").partition(":")
        trace = error.display("traceback").replace(_NAME, "<program>")
    except AttributeError:  # its process is gone, or was ended by its own clock
        if getattr(error, "timed_out", False):
            return {"what": "TimeoutError", "message": "time limit"}
        return {"what": "Crashed", "message": str(error)[:1000]}
    return {"what": what.strip(), "message": message.strip()[:20_000], "trace": trace[:40_000]}


def _plain(value: Any) -> Any:
    """What JSON has no word for."""
    if isinstance(value, set | frozenset):
        return sorted(cast("set[Any]", value), key=repr)
    attributes: Any = getattr(value, "attributes", None)
    return cast("Json", attributes) if isinstance(attributes, dict) and attributes else str(value)


def _no_deeper(value: Any) -> Any:
    """The value, and JSON text in place of what is too far down for the interpreter."""
    level = _containers([value])
    for _ in range(DEEPEST):
        if not level:
            return value
        level = [inner for outer in level for inner in _containers(_inside(outer))]
    return _cut(value, DEEPEST)


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _inside(value: Any) -> Iterable[Any]:
    return cast("Json", value).values() if isinstance(value, dict) else cast("list[Any]", value)


def _cut(value: Any, depth: int) -> Any:
    if isinstance(value, dict | list) and not depth:
        try:
            return json.dumps(value)
        except RecursionError:
            return "…"
    if isinstance(value, dict):
        return {name: _cut(inner, depth - 1) for name, inner in cast("Json", value).items()}
    return [_cut(inner, depth - 1) for inner in cast("list[Any]", value)] if isinstance(value, list) else value


def _encodable(value: Any) -> Any:
    """The value without halves of characters, which the interpreter does not take."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (RecursionError, ValueError):
        return "…"
    return _no_deeper(value)
