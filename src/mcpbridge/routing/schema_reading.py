"""Schemas taken apart: what they refer to, what they are put together of, and the members of their objects.

Schemas are any JSON, of any size and depth, and may lead back to themselves. So what is looked at is counted.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple, cast

from mcpbridge.routing.schema_refs import References

__all__ = ["NOTES", "Member", "Schema", "SchemaReader", "as_schema", "items_of"]

Schema = Mapping[str, Any]

_PARTS = 4000
_LEVELS = 24
_MERGED = 48
"""Schemas that one is put together of."""

_NOTES = "title description default examples deprecated readOnly writeOnly $comment $schema $id $defs definitions"
NOTES = frozenset(_NOTES.split())
"""Keywords that allow no less and no more."""


class Member(NamedTuple):
    """A member of an object."""

    name: str
    schema: object
    is_required: bool


class SchemaReader:
    """Reads one schema, part by part."""

    def __init__(self, root: object) -> None:
        self.refs = References(root)
        self.is_incomplete = False
        """Something was not understood, or was too much, and is missing from what was read."""
        self.has_copies = False
        """What it refers to was copied into another part, so all of it together may be longer than the schema."""
        self._left, self._level = _PARTS, 0

    def may_go_on(self) -> bool:
        """Count one part of the schema; False when there were too many."""
        self._left -= 1
        return self._left >= 0

    def flat(self, value: object) -> Schema | None:
        """A schema with what it refers to and is put together of in one object; None if it is none."""
        schema = as_schema(value)
        if schema is None or self._left < 0 or self._level > _LEVELS:
            return None
        self._left -= 8
        self._level += 1
        try:
            if "$ref" in schema:
                target = self.refs.target(schema["$ref"])
                if self.refs.is_open(target):
                    return None  # it would be put together out of itself
                self.has_copies = True
                schema = self.merged(schema, [target], "$ref")
            parts = items_of(schema.get("allOf"))
            return self.merged(schema, parts, "allOf") if parts else schema
        finally:
            self._level -= 1

    def merged(self, schema: Schema, parts: Iterable[object], keyword: str) -> Schema:
        """What a schema says besides `keyword`, and what these parts say."""
        merged = {key: value for key, value in schema.items() if key != keyword}
        for count, part in enumerate(parts):
            found = self.flat(part) if count < _MERGED and self._left > 0 else None
            if found is None:
                self.is_incomplete = True
                continue
            for key, value in found.items():
                self._put(merged, key, value)
        return merged

    def members_of(self, schema: Schema, most: int) -> tuple[list[Member], int]:
        """The first members that a schema names, those that must be there before all others; and how many it names."""
        said = as_schema(schema.get("properties"))
        properties: Schema = {} if said is None else said
        self.is_incomplete = self.is_incomplete or (said is None and schema.get("properties") is not None)
        listed = schema.get("required")
        if isinstance(listed, list):
            required = [name for name in items_of(cast("object", listed)) if isinstance(name, str)]
        else:  # the first drafts said it in each
            required = [name for name, one in properties.items() if (as_schema(one) or {}).get("required") is True]
        needed = frozenset(required)
        self._left -= (len(properties) + len(required)) // 32
        names = [name for name in properties if name in needed]
        names += [name for name in dict.fromkeys(required) if name not in properties]
        found = [Member(name, properties.get(name, True), is_required=True) for name in names[:most]]
        others = ((name, one) for name, one in properties.items() if name not in needed)
        found += [Member(name, one, is_required=False) for name, one in islice(others, most - len(found))]
        return found, len(names) + sum(name not in needed for name in properties)

    def _put(self, merged: dict[str, Any], key: str, value: object) -> None:
        """Add what one more part says; where two contradict each other, the first counts."""
        before = merged.get(key)
        if key not in merged:
            merged[key] = value
        elif key == "properties" and (one := as_schema(before)) and (other := as_schema(value)):
            self._left -= (len(one) + len(other)) // 16
            merged[key] = {**other, **one}
        elif key == "required" and isinstance(before, list) and isinstance(value, list):
            merged[key] = [*items_of(cast("object", before)), *items_of(cast("object", value))]
        elif key not in NOTES:
            is_same = value is before or (isinstance(value, str) and value == before)
            self.is_incomplete = self.is_incomplete or not is_same


def as_schema(value: object) -> Schema | None:
    """The value as an object; None if it is none."""
    return cast("Schema", value) if isinstance(value, Mapping) else None


def items_of(value: object) -> list[object]:
    """The items of a list; none of anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []
