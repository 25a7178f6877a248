"""From the schemas of an OpenAPI document to JSON Schema 2020-12, as tools have it. Decides only; no I/O.

A schema that is referred to becomes a definition (`$defs`) of each tool that needs it, so that references in circles
stay what they are. It is converted once for all tools, and for each direction: what only an answer has (`readOnly`) is
left out of arguments, and the other way round.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from msgspec import Struct

from mcpbridge.tools.openapi.document import Broken, Document, target_of

Direction = Literal["in", "out"]

MOST_NODES = 20_000
"""Schemas within schemas of one tool; more is a mistake, or an attack (aliases of YAML multiply)."""
DEEPEST = 60
"""Schemas within schemas."""

_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE = frozenset(
    {"items", "not", "additionalProperties", "propertyNames", "contains", "if", "then", "else"}
    | {"unevaluatedItems", "unevaluatedProperties", "contentSchema"}
)
_DROPPED = frozenset(
    {"discriminator", "xml", "externalDocs", "example", "nullable", "readOnly", "writeOnly"}
    | {"$schema", "$id", "$anchor", "$dynamicAnchor", "deprecated", "$comment"}
)
_ASSERTED = frozenset(
    {"required", "format", "pattern", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties"}
    | {"maxProperties", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "not", "default"}
    | {"if", "then", "else", "dependentRequired", "dependentSchemas", "examples", "propertyNames", "contains"}
)
"""What services keep least of what they say of their answers."""
_PREFIX = "#/$defs/"


class Schemas:
    """The schemas of one document."""

    def __init__(self, document: Document, *, is_old: bool) -> None:
        """`is_old`: of OpenAPI 3.0, whose schemas are a dialect of their own."""
        self._document, self._is_old = document, is_old
        self._names: dict[str, str] = {}
        """What references of the document are called among the definitions."""
        self._originals: dict[str, str] = {}
        """The same, the other way round."""
        self._definitions: dict[tuple[str, Direction], _Definition] = {}

    def converted(self, schema: Any, direction: Direction) -> dict[str, Any]:
        """A schema; what it refers to is not in it yet, see `whole`.

        Raises:
            Broken: it is none, or too large.
        """
        return self._schema(schema, direction, _Budget())

    def whole(self, schema: dict[str, Any], direction: Direction) -> dict[str, Any]:
        """A converted schema with the definitions that it needs.

        Raises:
            Broken: one of them is no schema, or they are too large together.
        """
        found: dict[str, dict[str, Any]] = {}
        waiting = list(_references(schema))
        size = 0
        while waiting:
            name = waiting.pop()
            if name in found or name not in self._originals:
                continue
            definition = self._definition(self._originals[name], direction)
            size += definition.size
            if size > MOST_NODES:
                raise Broken("its schemas are too large")
            found[name] = definition.schema
            waiting += definition.needed
        return {**schema, "$defs": dict(sorted(found.items()))} if found else schema

    def _definition(self, reference: str, direction: Direction) -> "_Definition":
        key = reference, direction
        if key not in self._definitions:
            budget = _Budget()
            schema = self._schema(target_of(self._document, reference), direction, budget)
            self._definitions[key] = _Definition(schema, tuple(set(_references(schema))), budget.used)
        return self._definitions[key]

    def followed(self, schema: dict[str, Any], direction: Direction) -> dict[str, Any]:
        """A converted schema that is no mere reference."""
        for _ in range(DEEPEST):
            name = str(schema.get("$ref", "")).removeprefix(_PREFIX)
            if len(schema) != 1 or name not in self._originals:
                return schema
            schema = self._definition(self._originals[name], direction).schema
        raise Broken("references lead in circles")

    def _schema(self, schema: Any, direction: Direction, budget: "_Budget", depth: int = 0) -> dict[str, Any]:
        budget.spend(depth)
        if isinstance(schema, bool):
            return {} if schema else {"not": {}}
        if not isinstance(schema, dict):
            raise Broken("a schema is no object")
        given = cast("dict[str, Any]", schema)
        made: dict[str, Any] = {}
        if isinstance(given.get("$ref"), str):
            made["$ref"] = self._named(given["$ref"])
            if self._is_old:
                return made  # nothing beside a reference counts there
        for keyword, value in given.items():
            if keyword in _DROPPED or keyword == "$ref" or str(keyword).startswith("x-"):
                continue
            if direction == "out" and keyword in _ASSERTED:
                continue
            said = "anyOf" if direction == "out" and keyword == "oneOf" and "anyOf" not in given else str(keyword)
            made[said] = self._keyword(said, value, direction, budget, depth + 1)
        example = given.get("example")
        if direction == "in" and isinstance(example, str | int | float) and "examples" not in made:
            made["examples"] = [example]
        if self._is_old or "nullable" in given:
            _modernize(made, is_nullable=given.get("nullable") is True)
        _without_others(made, given, direction)
        return _loosened(made) if direction == "out" else made

    def _keyword(self, keyword: str, value: Any, direction: Direction, budget: "_Budget", depth: int) -> Any:
        if keyword in _MAPS and isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            return {str(name): self._schema(one, direction, budget, depth) for name, one in members.items()}
        if keyword in _LISTS and isinstance(value, list):
            return [self._schema(one, direction, budget, depth) for one in cast("list[Any]", value)]
        if keyword in _SINGLE and isinstance(value, bool):
            return value
        if keyword in _SINGLE and isinstance(value, dict):
            return self._schema(value, direction, budget, depth)
        if keyword == "items" and isinstance(value, list):  # tuples, before 2020-12
            return {}
        return value

    def _named(self, reference: str) -> str:
        """The reference to a definition, for one within the document."""
        target_of(self._document, reference)
        if reference not in self._names:
            wanted = re.sub(r"[^A-Za-z0-9_.-]+", "_", reference.rsplit("/", 1)[-1])[:60] or "schema"
            name, number = wanted, 1
            while name in self._originals:
                number += 1
                name = f"{wanted}_{number}"
            self._names[reference], self._originals[name] = name, reference
        return _PREFIX + self._names[reference]


class _Definition(Struct, frozen=True):
    schema: dict[str, Any]
    needed: tuple[str, ...]
    size: int


class _Budget:
    """Bounds the work on one schema."""

    def __init__(self) -> None:
        self.used = 0

    def spend(self, depth: int) -> None:
        self.used += 1
        if self.used > MOST_NODES or depth > DEEPEST:
            raise Broken("its schemas are too large")


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        reference = members.get("$ref")
        if isinstance(reference, str) and reference.startswith(_PREFIX):
            yield reference.removeprefix(_PREFIX)
        for one in members.values():
            yield from _references(one)
    elif isinstance(value, list):
        for one in cast("list[Any]", value):
            yield from _references(one)


def _modernize(schema: dict[str, Any], *, is_nullable: bool) -> None:
    """Say in 2020-12 what OpenAPI 3.0 says in its own way."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)
    if not is_nullable:
        return
    kind = schema.get("type")
    if isinstance(kind, str):
        schema["type"] = [kind, "null"]
        values = schema.get("enum")
        if isinstance(values, list) and None not in values:
            schema["enum"] = [*cast("list[Any]", values), None]
    elif kind is None and schema:
        inner = dict(schema)
        schema.clear()
        schema["anyOf"] = [inner, {"type": "null"}]


def _without_others(schema: dict[str, Any], given: Mapping[str, Any], direction: Direction) -> None:
    """Leave out the members that only the other direction has."""
    properties = given.get("properties")
    if not isinstance(properties, dict):
        return
    mark = "readOnly" if direction == "in" else "writeOnly"
    others = {
        str(name)
        for name, one in cast("dict[str, Any]", properties).items()
        if isinstance(one, dict) and cast("dict[str, Any]", one).get(mark) is True
    }
    if not others:
        return
    if isinstance(schema.get("properties"), dict):
        schema["properties"] = {name: one for name, one in schema["properties"].items() if name not in others}
    if isinstance(schema.get("required"), list):
        schema["required"] = [name for name in cast("Sequence[Any]", schema["required"]) if name not in others]


def _loosened(schema: dict[str, Any]) -> dict[str, Any]:
    """Whatever a service promises, it may answer null."""
    kind = schema.get("type")
    if isinstance(kind, str) and kind != "null":
        schema["type"] = [kind, "null"]
    elif isinstance(kind, list) and "null" not in kind:
        schema["type"] = [*cast("list[Any]", kind), "null"]
    return schema
