"""JSON texts as Python values. A number that neither int nor float holds becomes a `Decimal`. Pure."""

import json
import math
from typing import Any

import msgspec

_MOST_DIGITS = 4300
"""Of an `int` that Python reads."""


def decoded(data: bytes) -> Any:
    """The value of a JSON text that was read before: it is one.

    Raises:
        msgspec.DecodeError: it is nested too deep for here, or is no JSON after all.
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:  # also of numbers that are too large
        return _by_hand(data)
    except RecursionError:
        raise msgspec.DecodeError(_TOO_DEEP) from None


_TOO_DEEP = "it is nested too deep"


def _by_hand(data: bytes) -> Any:
    try:
        return json.loads(data, parse_int=_int, parse_float=_float)
    except RecursionError:
        raise msgspec.DecodeError(_TOO_DEEP) from None
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None


def _int(text: str) -> Any:
    return int(text) if len(text) <= _MOST_DIGITS else _decimal(text)


def _float(text: str) -> Any:
    value = float(text)
    return value if math.isfinite(value) else _decimal(text)


def _decimal(text: str) -> Any:
    from decimal import Context, InvalidOperation  # loaded where there is such a number

    try:
        return Context(prec=len(text) + 1, Emin=-(10**18) + 1, Emax=10**18 - 1).create_decimal(text)
    except (InvalidOperation, ValueError, OverflowError):
        return float(text)
