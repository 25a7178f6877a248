"""JSON, read and written without changing a number: `1.10` stays `1.10`, and 20 digits stay 20 digits."""

import json
from typing import Any

import msgspec

__all__ = ["NotReadable", "parse_json", "write_json"]


class NotReadable(ValueError):
    """It is no JSON, or none that can be given back as it was.

    Too deep, a name twice in one object, NaN, a number of more than 4,300 digits.
    """


def parse_json(text: str) -> Any:
    """The value of a JSON text. Numbers are `int`, or `Decimal` where they have a point or an exponent.

    Raises:
        NotReadable: see there.
    """
    from decimal import Decimal  # loaded with the first large result

    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse, object_pairs_hook=_members)
    except RecursionError:
        raise NotReadable("nested too deep") from None
    except (ValueError, ArithmeticError) as error:  # ArithmeticError: an exponent that no Decimal has
        raise NotReadable(str(error)) from error


def write_json(value: Any) -> str:
    """The value as JSON again, as short as can be.

    Raises:
        NotReadable: a string holds half a character (a lone surrogate), which no UTF-8 can say; or it is nested too
            deep.
    """
    try:
        return _encoder.encode(value).decode()
    except (UnicodeEncodeError, RecursionError) as error:
        raise NotReadable(str(error)) from error


_encoder = msgspec.json.Encoder(decimal_format="number")


def _refuse(constant: str) -> Any:
    raise NotReadable(f"{constant} is no JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotReadable("a name stands twice in one object")
    return members
