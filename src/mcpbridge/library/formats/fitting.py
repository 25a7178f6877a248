"""Whether a value fits a schema, well enough to tell alternatives apart. Pure, and without compiling anything.

Calls are checked elsewhere, against the whole schema. What is not looked at here: `pattern`, `format`, `not`, `if`,
`contains`, `uniqueItems` and what depends on the presence of properties.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from mcpbridge.arguments.check import Schema
from mcpbridge.arguments.places import follow, is_schema
from mcpbridge.library.formats.schema_parts import object_of, texts_of

__all__ = ["Fitting", "TooMuch", "has_limits"]

_MAX_LEVELS = 64


class TooMuch(Exception):
    """The schema has too many alternatives within each other."""


class Fitting:
    """Looks at values by the parts of one schema, in at most so many steps: the schema is somebody else's."""

    def __init__(self, root: Schema, steps: int) -> None:
        self._root = root
        self._steps = steps

    def step(self) -> None:
        """Count one.

        Raises:
            TooMuch: there is none left.
        """
        self._steps -= 1
        if self._steps < 0:
            raise TooMuch

    def fits(self, schema: object, value: object, level: int = 0) -> bool:
        """Whether the value has the types, names, listed values and sizes that the schema wants."""
        self.step()
        if not is_schema(schema):
            return schema is not False
        if level > _MAX_LEVELS:
            return True
        return (
            _is_of_type(schema.get("type"), value)
            and _is_listed(schema, value)
            and has_limits(schema, value)
            and ("$ref" not in schema or self.fits(follow(self._root, schema["$ref"]), value, level + 1))
            and self._fits_parts(schema, value, level + 1)
            and self._fits_within(schema, value, level + 1)
        )

    def _fits_parts(self, schema: Schema, value: object, level: int) -> bool:
        every, some, one = (
            cast("list[object]", found) if isinstance(found := schema.get(keyword), list) else []
            for keyword in ("allOf", "anyOf", "oneOf")
        )
        if not all(self.fits(part, value, level) for part in every):
            return False
        if some and not any(self.fits(part, value, level) for part in some):
            return False
        return not one or sum(self.fits(part, value, level) for part in one) == 1

    def _fits_within(self, schema: Schema, value: object, level: int) -> bool:
        if isinstance(value, list):
            items = schema.get("items", True)
            first: object = schema.get("prefixItems")
            many = len(cast("list[object]", first)) if isinstance(first, list) else 0
            return all(self.fits(items, one, level) for one in cast("list[object]", value)[many:])
        if not isinstance(value, dict):
            return True
        members = cast("dict[str, object]", value)
        if any(name not in members for name in texts_of(schema.get("required"))):
            return False
        properties = object_of(schema.get("properties"))
        others = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        return all(self.fits(properties.get(name, others), one, level) for name, one in members.items())


def _is_of_type(kind: object, value: object) -> bool:
    if isinstance(kind, list):
        return any(_is_of_type(one, value) for one in cast("list[object]", kind))
    is_one = _TYPES.get(kind) if isinstance(kind, str) else None
    return is_one is None or is_one(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[object], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": lambda value: _is_number(value) and cast("float", value) % 1 == 0,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _is_listed(schema: Schema, value: object) -> bool:
    listed: object = schema.get("enum")
    if isinstance(listed, list) and not any(_is_same(one, value) for one in cast("list[object]", listed)):
        return False
    return "const" not in schema or _is_same(schema["const"], value)


def _is_same(one: object, other: object) -> bool:
    """JSON's equality: 1 and 1.0 are the same, 1 and true are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def has_limits(schema: Schema, value: Any) -> bool:
    """Whether a value is as large, and has as many parts, as the schema wants."""
    if _is_number(value):
        return all(_holds(schema.get(keyword), value, rule) for keyword, rule in _OF_NUMBERS.items())
    for kind, least, most in (
        (str, "minLength", "maxLength"),
        (list, "minItems", "maxItems"),
        (dict, "minProperties", "maxProperties"),
    ):
        if isinstance(value, kind):
            size = len(cast("str", value))
            return _holds(schema.get(least), size, _at_least) and _holds(schema.get(most), size, _at_most)
    return True


def _holds(limit: object, value: float, rule: Callable[[float, float], bool]) -> bool:
    return not _is_number(limit) or rule(value, cast("float", limit))


def _at_least(value: float, limit: float) -> bool:
    return value >= limit


def _at_most(value: float, limit: float) -> bool:
    return value <= limit


_OF_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    "minimum": _at_least,
    "maximum": _at_most,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "multipleOf": lambda value, limit: limit == 0 or value % limit == 0,
}
