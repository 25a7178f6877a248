"""The canonical form of a definition, and its digest. Pure.

Two texts have one form if, and only if, they mean the same: keys are sorted, numbers are spelled in one way, all that
is not ASCII is escaped, so that hidden characters show in a diff. A key that is there twice stays twice, as
programs differ in which of them they take.
"""

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, cast

Ignored = Sequence[re.Pattern[str]]
"""Texts that do not count, such as dates: what matches is masked before the digest is taken."""

MASK = "\N{HORIZONTAL ELLIPSIS}"
"""In the place of a text that does not count."""

_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d{1,18}))?")
_MOST_ZEROS = 20


class _Number(str):
    """A number, in its canonical spelling."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """The members of an object, sorted by their names."""


def canonical(raw: bytes, ignored: Ignored = ()) -> bytes:
    """The canonical form of a JSON text. A text that is no JSON becomes a string."""
    try:
        value: object = json.loads(
            raw, parse_int=_number, parse_float=_number, parse_constant=_Number, object_pairs_hook=_sorted
        )
        return _written(value, ignored).encode()
    except (ValueError, RecursionError):
        return json.dumps(raw.decode("utf-8", "backslashreplace")).encode()


def digest(raw: bytes, ignored: Ignored = ()) -> str:
    """The SHA-256 of the canonical form, in hexadecimal digits."""
    return sha256(canonical(raw, ignored)).hexdigest()


def _sorted(members: list[tuple[str, Any]]) -> _Object:
    return _Object(sorted(members, key=lambda member: member[0]))


def _written(value: object, ignored: Ignored) -> str:
    if isinstance(value, _Object):
        members = ",".join(f"{json.dumps(key)}:{_written(inner, ignored)}" for key, inner in value)
        return f"{{{members}}}"
    if isinstance(value, list):
        return f"[{','.join(_written(inner, ignored) for inner in cast('list[object]', value))}]"
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, str):
        for pattern in ignored:
            value = pattern.sub(MASK, value)
    return json.dumps(value)


def _number(text: str) -> _Number:
    match = _NUMBER.fullmatch(text)
    if match is None:  # an exponent that no program can use
        return _Number(text.lower())
    sign, whole, fraction, exponent = match[1], match[2], match[3] or "", int(match[4] or 0)
    digits = (whole + fraction).lstrip("0")
    power = exponent - len(fraction)
    stripped = digits.rstrip("0")
    power += len(digits) - len(stripped)
    if not stripped:
        return _Number("0")
    if 0 <= power <= _MOST_ZEROS:
        return _Number(sign + stripped + "0" * power)
    if -_MOST_ZEROS <= power < 0:
        padded = stripped.rjust(1 - power, "0")
        return _Number(f"{sign}{padded[:power]}.{padded[power:]}")
    return _Number(f"{sign}{stripped}e{power}")
