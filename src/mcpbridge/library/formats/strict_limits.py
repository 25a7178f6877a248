"""How much a strict schema may be, by the APIs' documentation. Pure.

OpenAI limits each schema; Anthropic limits what all strict tools of one request have together.
"""

from collections.abc import Iterator, Mapping
from typing import cast

from msgspec import Struct

from mcpbridge.arguments.check import Schema
from mcpbridge.arguments.places import is_schema
from mcpbridge.library.formats.schema_parts import Unsayable, object_of

__all__ = ["Spent", "refuse_too_large", "spending"]

MOST_PROPERTIES, MOST_LEVELS, MOST_VALUES, MOST_CHARACTERS = 5_000, 10, 1_000, 120_000
MANY_VALUES, CHARACTERS_OF_MANY = 250, 15_000
"""An `enum` of more texts than this may have so many characters."""
MOST_TOOLS, MOST_OPTIONAL, MOST_UNIONS = 20, 24, 16
"""Of Anthropic: strict tools of a request, and their optional properties and properties of several types together."""


def refuse_too_large(schema: Schema) -> None:
    """Check a strict schema against OpenAI's limits.

    Raises:
        Unsayable: it has too much of something.
    """
    properties = values = characters = 0
    for part in _parts(schema):
        names = object_of(part.get("properties"))
        listed = [one for one in cast("list[object]", part.get("enum", [])) if one is not None]
        length = sum(len(one) for one in listed if isinstance(one, str))
        if len(listed) > MANY_VALUES and length > CHARACTERS_OF_MANY:
            raise Unsayable(f"lists values of more than {CHARACTERS_OF_MANY:,} characters in one place")
        properties += len(names)
        values += len(listed)
        characters += length + sum(map(len, names)) + sum(map(len, object_of(part.get("$defs"))))
    for count, most, what in (
        (properties, MOST_PROPERTIES, "properties"),
        (values, MOST_VALUES, "listed values"),
        (characters, MOST_CHARACTERS, "characters of names and listed values"),
        (_levels(schema, schema, {}), MOST_LEVELS, "levels of objects and arrays within each other"),
    ):
        if count > most:
            raise Unsayable(f"has {count:,} {what}; strict schemas may have {most:,}")


def _parts(schema: Schema) -> Iterator[Schema]:
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += _inner(part)


def _inner(part: Schema) -> list[Schema]:
    found = [*_deeper(part), *object_of(part.get("$defs")).values(), *cast("list[object]", part.get("anyOf", []))]
    return [one for one in found if is_schema(one)]


def _deeper(part: Schema) -> list[object]:
    return [*object_of(part.get("properties")).values(), *([part["items"]] if "items" in part else [])]


def _levels(root: Schema, part: Schema, known: dict[str, int]) -> int:
    """How deep objects and arrays are within each other; what refers to itself counts once."""
    reference = part.get("$ref")
    if isinstance(reference, str):
        if reference not in known:
            known[reference] = 0
            target = object_of(root.get("$defs")).get(reference.removeprefix("#/$defs/"))
            known[reference] = _levels(root, target, known) if is_schema(target) else 0
        return known[reference]
    beside = [_levels(root, one, known) for one in cast("list[Schema]", part.get("anyOf", []))]
    deeper = [_levels(root, cast("Schema", one), known) for one in _deeper(part)]
    is_level = part.get("type") in ("object", "array")
    return max([0, *beside, is_level + max([0, *deeper])])


class Spent(Struct, frozen=True):
    """What strict tools have of what Anthropic limits."""

    tools: int = 0
    optional: int = 0
    unions: int = 0

    def with_tool(self, other: "Spent") -> "Spent":
        """What they have with another one.

        Raises:
            Unsayable: it is too much.
        """
        whole = Spent(self.tools + other.tools, self.optional + other.optional, self.unions + other.unions)
        if whole.tools > MOST_TOOLS:
            raise Unsayable(f"would be strict tool {whole.tools} of the request, which may have {MOST_TOOLS}")
        if whole.optional > MOST_OPTIONAL:
            raise Unsayable(f"brings the request's optional properties to {whole.optional}, of {MOST_OPTIONAL}")
        if whole.unions > MOST_UNIONS:
            raise Unsayable(f"brings the request's properties of several types to {whole.unions}, of {MOST_UNIONS}")
        return whole


def spending(schema: Schema) -> Spent:
    """What one strict schema has of it."""
    optional = unions = 0
    for part in _parts(schema):
        properties: Mapping[str, object] = object_of(part.get("properties"))
        optional += len(properties.keys() - set(cast("list[str]", part.get("required", []))))
        unions += "anyOf" in part or isinstance(part.get("type"), list)
    return Spent(1, optional, unions)
