"""An input schema in the part of JSON Schema that Gemini reads (`parametersJsonSchema`). Pure.

Rules are only ever left out: all arguments that the schema takes are arguments that the rewritten one takes. What is
left out is told in the description, and the bridge checks calls against the schema itself.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from mcpbridge.arguments.check import Schema
from mcpbridge.arguments.places import is_schema
from mcpbridge.library.formats.plain_schema import plain_schema
from mcpbridge.library.formats.schema_parts import Unsayable, followed, in_one_piece, object_of, texts_of
from mcpbridge.library.formats.strict_values import enumerated

__all__ = ["gemini_schema"]

_KEPT = ("type", "format", "title", "minItems", "minimum", "maximum", "required", "propertyOrdering")
"""Of what it reads, what stays as it is. Not `maxItems`: many of them make it refuse the whole request."""
_TOLD = (
    *("const", "enum", "default", "pattern", "minLength", "maxLength", "maxItems", "uniqueItems", "multipleOf"),
    *("exclusiveMinimum", "exclusiveMaximum", "minProperties", "maxProperties", "propertyNames"),
)
_MAX_LEVELS = 100


def gemini_schema(schema: Mapping[str, Any]) -> Schema:
    """The schema in Gemini's words. The top is always an object."""
    return _Writing(plain_schema(schema)).whole()


class _Writing:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._definitions: dict[str, Schema] = {}
        self._names: dict[str, str] = {}
        self._open: list[tuple[str, int]] = []
        """References that are being written, and how many optional properties were around each."""
        self._optional = 0
        self._levels = 0

    def whole(self) -> Schema:
        written = self._write(self._root)
        return {**written, "$defs": self._definitions} if self._definitions else written

    def _write(self, schema: object) -> Schema:
        """A part of the schema; one that cannot be told is one that takes any value."""
        if not is_schema(schema) or self._levels > _MAX_LEVELS:
            return {}
        self._levels += 1
        try:
            return self._written(_flat(self._root, schema))
        finally:
            self._levels -= 1

    def _written(self, flat: Schema) -> Schema:
        if "$ref" in flat:
            reference = self._reference(str(flat["$ref"]))
            text = _told(flat, ())
            return {"anyOf": [reference], "description": text} if reference and text else reference
        written: Schema = {key: flat[key] for key in _KEPT if key in flat}
        said = set(written)
        values = enumerated(flat)
        if values and all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in values):
            written["enum"] = values
            said |= {"enum", "const"}
        self._write_members(flat, written)
        for keyword in ("anyOf", "oneOf"):  # it reads both as `anyOf`
            if isinstance(flat.get(keyword), list) and "anyOf" not in written:
                written["anyOf"] = [self._write(one) for one in flat[keyword]]
        text = _told(flat, said)
        return {**written, "description": text} if text else written

    def _write_members(self, flat: Schema, written: Schema) -> None:
        if is_schema(flat.get("properties")):
            required = texts_of(flat.get("required"))
            written["properties"] = {}
            for name, one in object_of(flat["properties"]).items():
                self._optional += name not in required
                written["properties"][name] = self._write(one)
                self._optional -= name not in required
        has_patterns = bool(flat.get("patternProperties"))
        if "additionalProperties" in flat and not has_patterns:
            additional = flat["additionalProperties"]
            written["additionalProperties"] = additional if isinstance(additional, bool) else self._write(additional)
        if isinstance(flat.get("prefixItems"), list):
            written["prefixItems"] = [self._write(one) for one in flat["prefixItems"]]
        if is_schema(flat.get("items")):
            written["items"] = self._write(flat["items"])

    def _reference(self, reference: str) -> Schema:
        for opened, optional in self._open:
            if opened == reference and optional == self._optional:
                return {}  # it takes cycles through optional properties alone
        if reference == "#":
            return {}
        if reference not in self._names:
            try:
                target = followed(self._root, reference)
            except Unsayable:
                return {}
            last = re.sub(r"[^a-zA-Z0-9_]", "_", reference.rsplit("/", 1)[-1]) or "part"
            name = last
            while name in self._definitions:
                name = f"{last}_{len(self._definitions)}"
            self._names[reference] = name
            self._definitions[name] = {}
            self._open.append((reference, self._optional))
            self._definitions[name] = self._write(target)
            self._open.pop()
        return {"$ref": f"#/$defs/{self._names[reference]}"}


def _flat(root: Schema, schema: Schema) -> Schema:
    try:
        return in_one_piece(root, schema)
    except Unsayable:  # the parts cannot be told as one: what stands beside them is
        return {key: value for key, value in schema.items() if key not in ("allOf", "$ref")}


def _told(flat: Schema, said: object) -> str:
    told = cast("set[str]", said)
    text = flat.get("description")
    text = text if isinstance(text, str) else ""
    notes = [f"{key}: {_json(flat[key])}" for key in _TOLD if key in flat and key not in told and flat[key] is not None]
    return f"{text} ({', '.join(notes)})".strip() if notes else text


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
