"""Values inside of schemas as they are written in a signature: names, literals, ranges, patterns."""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

__all__ = ["as_range", "is_identifier", "literal", "pattern"]

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,99}", re.ASCII)
_PARTS = 24
"""Values in one literal."""
_BITS = 200
"""Of a number; Python refuses to write those of many thousand digits."""
_ANY_NUMBER = 2**53 - 1
"""Bounds that only say what a number in JSON is."""
_PATTERN = 80


def is_identifier(name: str) -> bool:
    """Whether a name needs no quotes."""
    return _IDENTIFIER.fullmatch(name) is not None


def literal(value: object, room: int) -> str:
    """A value as JSON, in at most `room` characters; empty if it does not fit."""
    if not _is_small(value, room):
        return ""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not text.isprintable():
        text = "".join([char if char.isprintable() else json.dumps(char)[1:-1] for char in text])
    return text if len(text) <= room else ""


def pattern(value: object) -> str:
    """A regular expression between slashes; empty if it is none, or long."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > _PATTERN:
        return ""
    return f"/{value}/"


def as_range(schema: Mapping[str, Any], least: str, most: str) -> tuple[str, bool]:
    """What two bounds allow, `1..50` or `>=1`, empty for anything; and whether that is all that they say."""
    exclusive = {key: schema.get(f"exclusive{key[0].upper()}{key[1:]}") for key in (least, most)}
    low, high = _bound(schema.get(least)), _bound(schema.get(most))
    parts: list[str] = []
    if low and high and not any(exclusive.values()):
        return f"{low}..{high}", True
    for key, sign, bound in ((least, ">", low), (most, "<", high)):
        beyond = exclusive[key]
        if beyond is True:  # as the first drafts said it
            parts += [f"{sign}{bound}"] if bound else []
        else:
            parts += [f"{sign}={bound}"] if bound else []
            parts += [f"{sign}{other}"] if (other := _bound(beyond)) else []
    values = (schema.get(least), schema.get(most), *exclusive.values())
    is_whole = all(value is None or isinstance(value, bool) or _is_number(value) for value in values)
    return " ".join(parts), is_whole


def _bound(value: object) -> str:
    if not _is_number(value) or abs(cast("float", value)) >= _ANY_NUMBER:
        return ""
    return literal(value, 24)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_small(value: object, room: int) -> bool:
    """Whether it can be written at all: neither deep nor long."""
    todo: list[tuple[object, int]] = [(value, 0)]
    for _ in range(_PARTS):
        if not todo:
            return True
        one, depth = todo.pop()
        if isinstance(one, str):
            if len(one) > room:
                return False
        elif isinstance(one, dict | list):
            several = cast("dict[str, object] | list[object]", one)
            if depth > 3 or len(several) > _PARTS:
                return False
            todo += [(part, depth + 1) for part in (several.items() if isinstance(several, dict) else several)]
        elif isinstance(one, tuple):
            todo += [(part, depth) for part in cast("tuple[object, ...]", one)]
        elif not _is_scalar(one):
            return False
    return not todo


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= _BITS)
