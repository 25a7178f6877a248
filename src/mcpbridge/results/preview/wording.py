"""How previews write values and field paths: short, visibly cut, numbers to the last digit.

Field paths take few characters: `user{login,id:int,type="User"},labels[]{name,color}`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

from msgspec import Struct

from mcpbridge.results.preview.limits import FIELD_FORMS, LONG_ID, LONG_ID_BEGINNING, NUMBER_LENGTH

_NEEDS_QUOTES = re.compile(r"^$|^[\s\"'\[{]|\s$|[\x00-\x1f\x7f\x85\u2028\u2029]|, |; |: | \| ")
_ID = re.compile(r"(?=\D*\d)[\w+=-]{1,4000}")


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, the last being `…` where something is missing."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def number(value: int | Decimal) -> str:
    """As JSON would write it; very long ones are cut."""
    if isinstance(value, int) and value.bit_length() > 400:
        return f"a number of {value.bit_length()} bits"
    return cut(str(value), NUMBER_LENGTH)


def value_text(value: Any, limit: int = 60) -> str:
    """A value within a line: bare where that is plain, else as JSON. Objects and lists by their size."""
    if isinstance(value, str):
        short = cut(value, limit)
        return json.dumps(short, ensure_ascii=False) if _NEEDS_QUOTES.search(short) else short
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, Decimal)):
        return number(value)
    if isinstance(value, dict):
        return f"{{{len(cast('dict[str, Any]', value))}}}"
    return f"[{len(value)}]"


def brief(value: Any, limit: int) -> str:
    """As `value_text`, and of long ids, such as hashes, the beginning alone."""
    return value[:LONG_ID_BEGINNING] + "…" if is_long_id(value) else value_text(value, limit)


def is_long_id(value: Any) -> bool:
    """A hash or such: long, in one piece, with digits."""
    return isinstance(value, str) and len(value) >= LONG_ID and _ID.fullmatch(value) is not None


def rounded_mean(total: int | Decimal, count: int) -> str:
    """The mean to four digits, or all of those before the point."""
    try:
        mean = Decimal(total) / count
    except ArithmeticError:
        return ""
    if not mean.is_finite():
        return ""
    if abs(mean) >= 10**15 or (mean and abs(mean) < Decimal("1e-6")):
        return f"{mean:.4g}"
    digits = max(0, 3 - mean.adjusted()) if mean else 0
    text = f"{mean:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def mean_text(total: int | Decimal, count: int) -> str:
    """The mean, marked with `≈` where it is rounded."""
    mean = rounded_mean(total, count)
    try:
        return mean if not mean or Decimal(mean) * count == total else f"≈{mean}"
    except ArithmeticError:
        return f"≈{mean}"


def ends_text(text: str, room: int) -> str:
    """A long text in so many characters: how it begins and how it ends, with how much is left out between."""
    whole = value_text(text, len(text)) if len(text) <= room else ""
    if whole and len(whole) <= room:
        return whole
    kept = room - 30
    while kept > 20:
        tail = kept // 4
        told = f"{value_text(text[: kept - tail], kept)} … +{len(text) - kept} chars … {value_text(text[-tail:], kept)}"
        if len(told) <= room:
            return told
        # Quotes and what is escaped in them take room as well.
        kept -= max(8, (len(told) - room) // 2)
    return value_text(text, max(room - 2, 1))[:room]


def time_text(value: Any) -> str:
    """A time as it is written; seconds and milliseconds since 1970 with their date."""
    if not isinstance(value, int):
        return value_text(value)
    from datetime import UTC, datetime

    seconds = value / 1000 if value > 10**11 else value
    return f"{value} ({datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M})"


_TYPES: dict[type, str] = {str: "str", int: "int", bool: "bool", Decimal: "number", list: "list", dict: "object"}


def type_name(value: object) -> str:
    """The type of a value in a word; `null` for none."""
    return _TYPES.get(type(value), "null")


def type_names(values: Iterable[object]) -> set[str]:
    """The types of these values."""
    return {_TYPES.get(kind, "null") for kind in set(map(type, values))}


def plural(count: int, noun: str) -> str:
    """`1 row`, `1204 rows`: digits alone, so that they can be found and copied."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


_STEP = re.compile(r'(?:\["(?:[^"\\]|\\.)*"\]|[^.\["]|\[(?!"))+')
PLAINEST = len(FIELD_FORMS) - 1
_Tree = dict[str, "_Tree | Field"]


class Field(Struct, frozen=True):
    """One path, for the list of fields."""

    path: str
    type: str = "str"
    """`unique`: strings, all different."""
    matter: float = 1.0
    """What is left out first, where there is no room for all, matters least."""
    always: str = ""
    """The value, as JSON, of a field that has the same one everywhere: `kind="Pod"`."""


def outline(fields: Sequence[Field], room: int, plainness: int = 0) -> str:
    """The fields, with their types if there is room; those that matter least are counted only.

    `plainness`: up to `PLAINEST`; the higher, the less is shown beside the names.
    """
    if not fields or room < 8:
        return ""
    tree = _tree(fields)
    for typed, longest, share in FIELD_FORMS[plainness:]:
        text = _render(tree, typed=typed, longest=longest)
        if len(text) <= room * share:
            return text
    ranked = sorted(range(len(fields)), key=lambda place: (-fields[place].matter, place))
    low, high = 0, len(ranked)
    best = ""
    while low <= high:
        middle = (low + high) // 2
        kept = [fields[place] for place in sorted(ranked[:middle])]
        note = f"… +{len(fields) - middle} fields"
        text = f"{_render(_tree(kept), typed=False, longest=0)},{note}" if kept else note
        if len(text) <= room:
            best, low = text, middle + 1
        else:
            high = middle - 1
    return best


def _tree(fields: Sequence[Field]) -> _Tree:
    root: _Tree = {}
    for field in fields:
        steps = _STEP.findall(field.path) or [field.path]
        node = root
        for step in steps[:-1]:
            inner = node.get(step)
            if not isinstance(inner, dict):
                # A field that is an object in some rows and a plain value in others: the members say more.
                inner = {}
                node[step] = inner
            node = inner
        if not isinstance(node.get(steps[-1]), dict):
            node[steps[-1]] = field
    return root


def _render(node: Mapping[str, "_Tree | Field"], *, typed: bool, longest: int) -> str:
    """`typed`: with types; `longest`: values of constant fields of so many characters at most are told."""
    parts: list[str] = []
    for name, inner in node.items():
        short = cut(name, 64)
        if isinstance(inner, Field):
            if 0 < len(inner.always) <= longest:
                short = f"{short}={inner.always}"
            elif typed and inner.type != "str":
                short = f"{short}:{inner.type}"
            parts.append(short)
        elif len(inner) == 1:
            parts.append(f"{short}.{_render(inner, typed=typed, longest=longest)}")
        else:
            parts.append(f"{short}{{{_render(inner, typed=typed, longest=longest)}}}")
    return ",".join(parts)
