"""How many errors one wrong value can be: of `anyOf` and `oneOf`, every alternative has some of its own. Pure.

The validator makes them all before it tells of the first, 20 µs each. A list of a thousand words, each of which must be
one of a hundred literals, was 100,000 errors: two seconds in which nobody else is served.
"""

from collections.abc import Iterator
from typing import cast

from msgspec import Struct

from mcpbridge.arguments.check import Schema, Width
from mcpbridge.arguments.places import follow, is_schema

__all__ = ["width_of"]

_ALTERNATIVES = frozenset({"anyOf", "oneOf"})
_IN_PLACE = frozenset({"allOf", "if", "then", "else", "not", "dependentSchemas", *_ALTERNATIVES})
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
_OF_MEMBERS = frozenset(
    (
        *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
        *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"),
    )
)


def width_of(root: Schema) -> Width:
    """What the check of a value costs at most, by its size.

    Raises RecursionError: the schema is nested too deeply.
    """
    found = _Widths(root).of(root)
    return Width(found.errors, found.within)


class _Found(Struct, frozen=True):
    errors: int = 1
    within: int = 0
    has_members: bool = False
    """It says something of members or items of its value."""


class _Widths:
    """Looks at each part once; one that leads back to itself counts once."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: dict[int, _Found] = {}

    def of(self, part: object) -> _Found:
        """Of one schema."""
        if not is_schema(part):
            return _Found()
        known = self._known.get(id(part))
        if known is not None:
            return known
        self._known[id(part)] = _Found(has_members=True)  # while it is looked at: here it leads back to itself
        here, within, has_members = 0, 0, False
        of_members = [self.of(one) for keyword in _OF_MEMBERS & part.keys() for one in _schemas(keyword, part)]
        for keyword in _IN_PLACE & part.keys():
            several = [self.of(one) for one in _schemas(keyword, part)]
            errors = sum(one.errors for one in several)
            here += errors
            has_members = has_members or any(one.has_members for one in several)
            within = max([within, *(one.within for one in several)])
            if keyword in _ALTERNATIVES and any(one.has_members for one in several):
                within = max(within, errors)
        if "$ref" in part:
            referred = self.of(follow(self._root, part["$ref"]))
            here, within = here + referred.errors, max(within, referred.within)
            has_members = has_members or referred.has_members
        found = _Found(
            max([1, here, *(one.errors for one in of_members)]),
            max([within, *(one.within for one in of_members)]),
            has_members or bool(of_members),
        )
        self._known[id(part)] = found
        return found


def _schemas(keyword: str, part: Schema) -> Iterator[object]:
    value: object = part[keyword]
    if isinstance(value, list):
        yield from cast("list[object]", value)
    elif keyword in _BY_NAME and is_schema(value):
        yield from value.values()
    else:
        yield value
