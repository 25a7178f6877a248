"""Seconds, moments and bytes as people write them: "30s", "1.5 min", "2026-07-28T12:00", "2 MiB", or a plain number.

Reading and showing only. In the code a `Seconds` is a float and a `Bytes` an int, so arithmetic needs no wrapper.
"""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, WithJsonSchema

_TIME_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
}
_SIZE_UNITS = {
    **dict.fromkeys(("", "b", "byte", "bytes"), 1),
    **dict.fromkeys(("kb",), 1000),
    **dict.fromkeys(("mb",), 1000**2),
    **dict.fromkeys(("gb",), 1000**3),
    # A bare letter is binary, as in `docker run -m 64m` and `ulimit`.
    **dict.fromkeys(("k", "kib"), 1024),
    **dict.fromkeys(("m", "mib"), 1024**2),
    **dict.fromkeys(("g", "gib"), 1024**3),
}
_QUANTITY = re.compile(r"\s*([0-9]+(?:[_0-9]*[0-9])?(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*", re.ASCII)

MAX_SECONDS = 10 * 365 * 86400.0
"""Ten years: more is a mistake, and far below what timers of operating systems take."""

MAX_BYTES = 1024**4
"""1 TiB: more is a mistake."""


def parse_seconds(value: object) -> float:
    """A time span in seconds, from a number of seconds or a text such as "1.5 min".

    Raises:
        ValueError: it is none, or it is below 0 or above ten years.
    """
    seconds = _quantity(value, _TIME_UNITS, 'a time such as 30, "30s", "5 min" or "1h"')
    if seconds > MAX_SECONDS:
        raise ValueError("longer than ten years")
    return seconds


def parse_moment(text: str, now: float) -> float:
    """Seconds since 1970, from a time span before `now` or a point in time; without a time zone it is the machine's.

    Raises:
        ValueError: it is neither.
    """
    try:
        return now - parse_seconds(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        expected = 'expected a time span such as "1h", or a time such as 2026-07-28T12:00'
        raise ValueError(expected) from None


def parse_bytes(value: object) -> int:
    """A size in bytes, from a number of bytes or a text such as "2 MiB" (1024 based) or "2 MB" (1000 based).

    Raises:
        ValueError: it is none, or it is below 0, above 1 TiB or no whole number of bytes.
    """
    size = _quantity(value, _SIZE_UNITS, 'a size such as 65536, "64 KiB" or "2 MiB"')
    if size > MAX_BYTES:
        raise ValueError("larger than 1 TiB")
    if size != int(size):
        raise ValueError("not a whole number of bytes")
    return int(size)


_SPANS = {1.0: "s", 60.0: "min", 3600.0: "h", 86400.0: "d"}


class Rate(NamedTuple):
    """How often something may happen: `times` within `seconds`."""

    times: int
    seconds: float

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.times}/{_SPANS.get(self.seconds) or show_seconds(self.seconds)}"


def parse_rate(value: object) -> Rate:
    """A rate from a text such as "30/min", "5/s", "1000/1h" or "10/30s".

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, Rate):
        return value
    expected = 'expected a rate such as "30/min", "5/s" or "100/h"'
    times, _, span = value.partition("/") if isinstance(value, str) else ("", "", "")
    span = span.strip()
    if not times.strip().isdecimal() or not span or int(times) < 1:
        raise ValueError(expected)
    try:
        seconds = parse_seconds(span if span[0].isdigit() or span[0] == "." else f"1{span}")
    except ValueError:
        raise ValueError(expected) from None
    if seconds <= 0:
        raise ValueError(expected)
    return Rate(int(times), seconds)


def show_seconds(seconds: float) -> str:
    """The span, to the microsecond, in the largest unit without a fraction: "90s", "5m", "250ms", "1.5s"."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{int(seconds // length)}{unit}"
    if 0 < seconds < 1 and round(seconds * 1000) / 1000 == seconds:
        return f"{round(seconds * 1000)}ms"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def show_bytes(size: int) -> str:
    """The size in the largest unit that shows it exactly, readable by `parse_bytes`: "64 MiB", "256 MB", "1000 B"."""
    for unit, length in (("GiB", 1024**3), ("GB", 10**9), ("MiB", 1024**2), ("MB", 10**6), ("KiB", 1024)):
        if size >= length and size % length == 0:
            return f"{size // length} {unit}"
    return f"{size} B"


Seconds = Annotated[float, BeforeValidator(parse_seconds)]
"""A settings field that holds seconds; people may write a unit."""

RateText = Annotated[
    Rate, BeforeValidator(parse_rate), WithJsonSchema({"type": "string", "examples": ["30/min", "5/s", "100/h"]})
]
"""A settings field that holds a rate; people write a text."""

Bytes = Annotated[int, BeforeValidator(parse_bytes)]
"""A settings field that holds bytes; people may write a unit."""


def _quantity(value: object, units: Mapping[str, float], expected: str) -> float:
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        unit = units.get(match[2].lower()) if match else None
        if match is None or unit is None:
            raise ValueError(f"expected {expected}")
        number = float(match[1])
        return number / round(1 / unit) if unit < 1 else number * unit  # a division is exact where 0.001 is not
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected {expected}")
    if value < 0:
        raise ValueError("below 0")
    return value
