"""Values of results, compared and written: numbers exactly, and as numbers where one side is a text that says one.

Times in ISO form compare as the texts that they are.
"""

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from mcpbridge.results.exact_json import NotReadable, write_json

__all__ = ["compare", "contains", "equal", "identity", "number_of", "order_by", "without_halves", "written"]

_NUMERIC = re.compile(r"\s*-?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,4})?\s*", re.ASCII)
_HALVES = re.compile("[\ud800-\udfff]")


def number_of(value: Any) -> int | Decimal | None:
    """The number that a value is, or that a text says; None if it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | Decimal):
        return value
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, str) and len(value) < 20 and value.isdigit() and value.isascii():
        return int(value)
    if isinstance(value, str) and len(value) < 900 and _NUMERIC.fullmatch(value):
        try:
            return Decimal(value.strip())
        except InvalidOperation:
            return None
    return None


def equal(one: Any, other: Any) -> bool:
    """Whether they are the same value: texts that say numbers equal those numbers, "true" equals true."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, bool) or isinstance(other, bool):
        return _truth(one) == _truth(other) if isinstance(one, bool | str) and isinstance(other, bool | str) else False
    if isinstance(one, list | dict) or isinstance(other, list | dict) or one is None or other is None:
        return isinstance(one, list) == isinstance(other, list) and cast("Any", one) == other
    mine, theirs = number_of(one), number_of(other)
    return mine is not None and mine == theirs


def compare(one: Any, other: Any) -> int | None:
    """Below 0, 0 or above 0, as `one` comes before `other`; None if they cannot be compared."""
    if isinstance(one, str) and isinstance(other, str):
        return (one > other) - (one < other)
    mine, theirs = number_of(one), number_of(other)
    return None if mine is None or theirs is None else (mine > theirs) - (mine < theirs)


def contains(whole: Any, part: Any) -> bool:
    """A text has that piece, a list that element (or an object with a member of that value), an object that name."""
    if isinstance(whole, str):
        return part is not None and (part if isinstance(part, str) else written(part)) in whole
    if isinstance(whole, list):
        return any(equal(item, part) or _has_value(item, part) for item in cast("list[Any]", whole))
    if isinstance(whole, dict):
        return isinstance(part, str) and part in whole
    return isinstance(part, str) and not isinstance(whole, bool | None) and part in written(whole)


def identity(value: Any) -> Any:
    """Something hashable that two values share when they are the same."""
    if isinstance(value, bool) or value is None:
        return str(value), value
    if isinstance(value, list | dict):
        return "json", written(value)
    return "number" if not isinstance(value, str) else "", value


def order_by(values: list[Any]) -> Callable[[Any], Any]:
    """A sort key for these values and no others: a total order over mixed types.

    Numbers, then texts, then true and false, then the rest, then null. Texts that say numbers count as numbers if all
    texts do.
    """
    texts = [value for value in values if isinstance(value, str)]
    numeric = bool(texts) and all(number_of(text) is not None for text in texts)

    def key(value: Any) -> Any:
        if value is None:
            return 4, 0
        if isinstance(value, bool):
            return 2, value
        if isinstance(value, str):
            return (0, number_of(value)) if numeric else (1, value)
        if isinstance(value, list | dict):
            return 3, written(value)
        return 0, number_of(value)

    return key


def written(value: Any) -> str:
    """A value as short JSON. Half characters, which JSON in UTF-8 cannot say, become `\ufffd`."""
    try:
        return write_json(value)
    except NotReadable:
        return write_json(_whole(value))


def without_halves(text: str) -> str:
    """The text with every half of a character (a lone surrogate) replaced by `\ufffd`; as long as before."""
    return _HALVES.sub("\ufffd", text)


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return without_halves(value)
    if isinstance(value, list):
        return [_whole(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {without_halves(name): _whole(member) for name, member in members.items()}
    return value


def _truth(value: bool | str) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if len(value) < 6 else None


def _has_value(item: Any, part: Any) -> bool:
    if not isinstance(item, dict):
        return False
    return any(
        not isinstance(member, list | dict) and equal(member, part) for member in cast("dict[str, Any]", item).values()
    )
