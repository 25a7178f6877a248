"""Values as previews say them: short, cut visibly, numbers to the last digit."""

import json
import re
from decimal import Decimal
from typing import Any, cast

__all__ = [
    "brief",
    "cut",
    "ends_said",
    "is_long_id",
    "mean_of",
    "mean_said",
    "number",
    "plural",
    "said",
    "time_said",
    "type_said",
]

_NEEDS_QUOTES = re.compile(r"^$|^[\s\"'\[{]|\s$|[\x00-\x1f\x7f\x85\u2028\u2029]|, |; |: | \| ")
_LONGEST_NUMBER = 120
_LONG_ID = 24
_OF_LONG_ID = 10
_ID = re.compile(r"(?=\D*\d)[\w+=-]{1,4000}")


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, the last being `…` where something is missing."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def number(value: int | Decimal) -> str:
    """As JSON would write it; very long ones are cut."""
    if isinstance(value, int) and value.bit_length() > 400:
        return f"a number of {value.bit_length()} bits"
    return cut(str(value), _LONGEST_NUMBER)


def said(value: Any, limit: int = 60) -> str:
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
    """As `said`, and of long ids, such as hashes, the beginning alone."""
    return value[:_OF_LONG_ID] + "…" if is_long_id(value) else said(value, limit)


def is_long_id(value: Any) -> bool:
    """A hash or such: long, in one piece, with digits."""
    return isinstance(value, str) and len(value) >= _LONG_ID and _ID.fullmatch(value) is not None


def mean_of(total: int | Decimal, count: int) -> str:
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


def mean_said(total: int | Decimal, count: int) -> str:
    """The mean, marked with `≈` where it is rounded."""
    mean = mean_of(total, count)
    try:
        return mean if not mean or Decimal(mean) * count == total else f"≈{mean}"
    except ArithmeticError:
        return f"≈{mean}"


def ends_said(text: str, room: int) -> str:
    """A long text in so many characters: how it begins and how it ends, with how much is left out between."""
    whole = said(text, len(text)) if len(text) <= room else ""
    if whole and len(whole) <= room:
        return whole
    kept = room - 30
    while kept > 20:
        tail = kept // 4
        told = f"{said(text[: kept - tail], kept)} … +{len(text) - kept} chars … {said(text[-tail:], kept)}"
        if len(told) <= room:
            return told
        # Quotes and what is escaped in them take room as well.
        kept -= max(8, (len(told) - room) // 2)
    return said(text, max(room - 2, 1))[:room]


def time_said(value: Any) -> str:
    """A time as it is written; seconds and milliseconds since 1970 with their date."""
    if not isinstance(value, int):
        return said(value)
    from datetime import UTC, datetime

    seconds = value / 1000 if value > 10**11 else value
    return f"{value} ({datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M})"


_TYPES: dict[type, str] = {str: "str", int: "int", bool: "bool", Decimal: "number", list: "list", dict: "object"}


def type_said(value: object) -> str:
    """The type of a value in a word; `null` for none."""
    return _TYPES.get(type(value), "null")


def plural(count: int, noun: str) -> str:
    """`1 row`, `1204 rows`: digits alone, so that they can be found and copied."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
