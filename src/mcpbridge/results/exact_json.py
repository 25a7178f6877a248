"""Reads and writes JSON without changing a number, and follows JSON pointers (RFC 6901). Pure.

`1.10` stays `1.10`, and 20 digits stay 20 digits.
"""

import json
import re
from functools import cache
from typing import Any, cast
from urllib.parse import unquote

import msgspec


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
        return _read_quickly(text)
    except (ValueError, ArithmeticError, RecursionError):  # `json` knows why, or that it can be read all the same
        pass
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


@cache
def _decoder() -> "msgspec.json.Decoder[Any]":
    from decimal import Decimal

    return msgspec.json.Decoder(float_hook=Decimal)


def _read_quickly(text: str) -> Any:
    """The value of a text that certainly has no name twice in one object, in a third of the time.

    Of equal names the decoder keeps the last.

    Raises:
        ValueError, ArithmeticError, RecursionError: it is not known to be read rightly.
    """
    value = _decoder().decode(text)
    colons = text.count(":")
    if not colons:
        return value
    containers = text.count("{") + text.count("[")
    if text.count(".") < 2 * containers:
        all_there = _is_written_with(colons, value, text)
    else:  # many numbers with a point, which take longer to be written than objects to be looked through
        all_there = _has_all_names(colons, value, text, containers)
    if not all_there:
        raise ValueError
    return value


def _is_written_with(colons: int, value: Any, text: str) -> bool:
    """Whether the value, written again, has as many colons as its text: one after each name, and those of strings.

    A name that was dropped took its colon with it, and nothing adds one but an escape that stands for it.
    """
    if "\\" in text and "\\u003" in text:
        return False
    return _encoder.encode(value).count(b":") == colons


def _has_all_names(colons: int, value: Any, text: str, containers: int) -> bool:
    """Whether the value has as many names as its text. A name is where a quote and a colon meet; there are no more."""
    names = text.count('":')
    if names != colons and any(blank in text for blank in _BEFORE_COLON):
        return False
    return names == _count_members(value, containers)


_BEFORE_COLON = (" :", "\n:", "\t:", "\r:")
"""A blank before a colon: a name may end here that a search for quotes with colons does not find."""


def _count_members(value: Any, containers: int) -> int:
    """Of all objects, at any depth. `containers`: at most so many objects and lists there are, the value included.

    Once all of them are found, nothing else is looked into: a list of flat rows has none within its rows.
    """
    count, found, rest = 0, 1, [value]
    while rest and found < containers:
        one = rest.pop()
        if isinstance(one, dict):
            members = cast("dict[str, Any]", one)
            count += len(members)
            inner = [each for each in members.values() if type(each) in _CONTAINERS]
        elif isinstance(one, list):
            inner = [each for each in cast("list[Any]", one) if type(each) in _CONTAINERS]
        else:
            continue
        found += len(inner)
        rest += inner
    return count + sum([len(cast("dict[str, Any]", one)) for one in rest if isinstance(one, dict)])


_CONTAINERS = frozenset({dict, list})


def _refuse(constant: str) -> Any:
    raise NotReadable(f"{constant} is no JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotReadable("a name occurs twice in one object")
    return members


_SHOWN = 8
_NUMBER = re.compile(r"-?[0-9]{1,11}")


class NotThere(LookupError):
    """The pointer finds nothing; the message says where it ended, and what is there."""


def pointed_at(value: Any, pointer: str) -> Any:
    """What a pointer finds: the empty one the whole value, `/items/0/body` a member of a member.

    `-1` counts from the end of a list, which the RFC leaves undefined. Percent-encoding is undone where the pointer as
    it is finds nothing, since it is in the fragment of a URI (section 6).

    Raises:
        NotThere: nothing is there.
    """
    try:
        return _walk(value, pointer)
    except NotThere:
        if "%" not in pointer:
            raise
        return _walk(value, unquote(pointer))


def _walk(value: Any, pointer: str) -> Any:
    if pointer and not pointer.startswith("/"):
        raise NotThere(f"a pointer begins with /, as in #/items/0; this one is #{pointer[:100]}")
    here = ""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            if name not in members:
                raise NotThere(f"no member {name[:100]!r} at #{here}; there are {_some(members)}")
            value = members[name]
        elif isinstance(value, list):
            value = _item(cast("list[Any]", value), name, here)
        else:
            raise NotThere(f"#{here} is neither an object nor a list")
        here += f"/{token}"
    return value


def _item(items: list[Any], name: str, here: str) -> Any:
    number = int(name) if _NUMBER.fullmatch(name) else None
    if number is None or not -len(items) <= number < len(items):
        raise NotThere(f"#{here} is a list of {len(items)}, which has no item {name[:100]!r}")
    return items[number]


def _some(members: dict[str, Any]) -> str:
    shown = [name[:60] for name in list(members)[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(members) - _SHOWN} more" if len(members) > _SHOWN else "") or "none"
