"""The documented limits of APIs' strict modes: keywords, and sizes of schemas. Pure.

OpenAI limits each schema; Anthropic limits all strict tools of one request together. Rules that a mode has no keyword
for are written into the description.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import msgspec
from msgspec import Struct

from mcpbridge.library.llm_formats.schemas.parts import Unsayable, object_of
from mcpbridge.pipeline.validation.schema_check import Schema
from mcpbridge.pipeline.validation.schema_paths import is_schema

_OF_TYPES: Mapping[str, tuple[str, ...]] = {
    "string": ("pattern", "minLength", "maxLength", "contentEncoding", "contentMediaType", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems"),
    "object": ("minProperties", "maxProperties", "propertyNames"),
}
_SAID_ANYWAY = ("format", "contentEncoding", "contentMediaType")
"""Not asserted by the bridge either: nothing is lost when they are left out."""
_FANCY = re.compile(r"\(\?(?!:)|\\[bBAZGpPkK1-9]")
"""In a `pattern`: what grammars cannot hold a model to."""


class Dialect(Struct, frozen=True):
    """What an API's strict mode has words for."""

    requires_all: bool
    """Every property has to be required; those that are not meant are null."""
    has_recursion: bool
    keeps: frozenset[str]
    """Rules for values of one type that it has; the others are written in the description."""
    formats: frozenset[str]

    def has_rule(self, keyword: str, value: object) -> bool:
        """Whether a rule for values of one type can be said in it."""
        if keyword == "format":
            return value in self.formats
        if keyword == "pattern" and (not isinstance(value, str) or _FANCY.search(value)):
            return False
        return keyword in self.keeps

    def rules(self, flat: Schema, kind: str) -> Schema:
        """The rules for values of a type that can be said in it."""
        return {
            keyword: flat[keyword] for keyword in _of(kind) if keyword in flat and self.has_rule(keyword, flat[keyword])
        }

    def description(self, flat: Schema, kinds: Iterable[str]) -> tuple[str, list[str]]:
        """The description of a place, and the rules that are lost there.

        It has what else the model should know: the default, and the rules that cannot be said.
        """
        lost = [one for kind in kinds for one in _of(kind) if one in flat and not self.has_rule(one, flat[one])]
        lost = list(dict.fromkeys(lost))
        notes = [f"{keyword}: {_json(flat[keyword])}" for keyword in lost]
        text = flat.get("description")
        text = text if isinstance(text, str) else ""
        default = flat.get("default")
        if default not in (None, [], {}, "") and _json(default).strip('"') not in text:
            notes.append(f"default: {_json(default)}")
        said = f"({', '.join(notes)})" if notes else ""
        return f"{text} {said}".strip(), [keyword for keyword in lost if keyword not in _SAID_ANYWAY]


OPENAI = Dialect(
    requires_all=True,
    has_recursion=True,
    keeps=frozenset(
        {"pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"}
    ),
    formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}),
)
"""OpenAI's structured outputs."""
ANTHROPIC = Dialect(
    requires_all=False,
    has_recursion=False,
    keeps=frozenset(),
    formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}),
)
"""Anthropic's strict tools."""


def _of(kind: str) -> tuple[str, ...]:
    return _OF_TYPES.get("number" if kind == "integer" else kind, ())


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


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
