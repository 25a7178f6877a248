"""An input schema for an API without strict mode: unchanged, but for what the API refuses. Pure.

It only loses rules, so it takes every argument that the original takes. The bridge checks calls against the original.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from mcpbridge.library.llm_formats.schemas.parts import TYPES, Unsayable, followed, object_of, texts_of
from mcpbridge.pipeline.validation.schema_check import Schema
from mcpbridge.pipeline.validation.schema_paths import follow, is_schema

_OF_THE_WHOLE = ("anyOf", "oneOf", "allOf", "enum", "const", "not", "if", "then", "else", "$ref")
"""What no API takes beside `type: object` at the top."""
PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}\Z")
"""What Anthropic and OpenAI take as names of properties at the top."""
_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_TEXTS = ("title", "description", "pattern", "format", "$comment", "$ref")
_NUMBERS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
    *("minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"),
)
"""`exclusiveMinimum` and its like are numbers since draft 6; before, they said how the limit beside them is meant."""
_MAX_LEVELS = 200


def plain_schema(schema: Mapping[str, Any]) -> Schema:
    """The schema with `type: object` and `properties` at the top, no alternatives beside them, and known types."""
    root = dict(schema)
    whole = _inlined(root, root)
    properties = _properties(root, whole)
    described = [str(whole["description"])] if whole.get("description") else []
    if any(keyword in whole for keyword in _OF_THE_WHOLE):
        described.append(f"The arguments also fit: {_json(_rules_of_whole(whole))}")
    odd = {name: one for name, one in properties.items() if not PROPERTY_NAME.match(name)}
    if odd:
        described.append(f"Further properties: {_json(odd)}")
    required = [name for name in texts_of(whole.get("required")) if name not in odd]
    leftover = {*_OF_THE_WHOLE, "$schema", "$id", "type", "properties", "required", "description"}
    written: Schema = {
        "type": "object",
        "properties": {name: _known(one) for name, one in properties.items() if name not in odd},
        **({"required": required} if required else {}),
        **_known_members({key: value for key, value in whole.items() if key not in leftover}),
    }
    if odd:
        written.pop("additionalProperties", None)
    if described:
        written["description"] = "\n".join(described)
    return cast("Schema", _without_lost_references(written, written))


def _inlined(root: Schema, schema: Schema) -> Schema:
    """What a schema says itself, where it only refers to a part of the whole."""
    for _ in range(16):
        if "$ref" not in schema:
            break
        try:
            target = followed(root, schema["$ref"])
        except Unsayable:
            break
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _properties(root: Schema, whole: Schema) -> dict[str, object]:
    """All properties that a call may have: those of the top, and those of its alternatives, which may differ there."""
    further: dict[str, list[object]] = {}
    for part in _parts(root, whole):
        for name, one in object_of(part.get("properties")).items():
            known = further.setdefault(name, [])
            if one not in known:
                known.append(one)
    own = dict(object_of(whole.get("properties")))
    for name, each in further.items():
        own.setdefault(name, each[0] if len(each) == 1 else {"anyOf": each})
    return own


def _parts(root: Schema, whole: Schema, levels: int = 0) -> list[Schema]:
    if levels > 4:
        return []
    found: list[Schema] = []
    for keyword in ("allOf", "anyOf", "oneOf", "then", "else"):
        inner: object = whole.get(keyword)
        for part in cast("list[object]", inner) if isinstance(inner, list) else [inner]:
            if is_schema(part):
                flat = _inlined(root, part)
                found += [flat, *_parts(root, flat, levels + 1)]
    return found


def _rules_of_whole(whole: Schema) -> Schema:
    return {key: whole[key] for key in _OF_THE_WHOLE if key in whole}


def _known(schema: object, level: int = 0) -> object:
    """The schema where it is one; `type`s that are none are left out, and arrays say something of their elements."""
    if not is_schema(schema):
        return schema if isinstance(schema, bool) else {}
    return _known_members(schema, level)


def _known_members(schema: Schema, level: int = 0) -> Schema:
    if level > _MAX_LEVELS:
        return {}
    written: Schema = {}
    for key, value in schema.items():
        if key in _OF_SCHEMAS:
            if is_schema(value):
                written[key] = {name: _known(one, level + 1) for name, one in value.items()}
        elif key in _LISTS:
            if isinstance(value, list):
                written[key] = [_known(one, level + 1) for one in cast("list[object]", value)]
        elif key == "items" and isinstance(value, list):  # how tuples were written before 2020-12
            written["prefixItems"] = [_known(one, level + 1) for one in cast("list[object]", value)]
        elif key in _SINGLE:
            written[key] = _known(value, level + 1)
        elif key == "type":
            kinds = [value] if isinstance(value, str) else texts_of(value)
            if kinds and all(kind in TYPES for kind in kinds):
                written[key] = value
        elif key == "required":
            if isinstance(value, list):
                written[key] = texts_of(cast("object", value))
        elif key != "$id" and _is_of_its_kind(key, value):
            written[key] = value
    if "array" in _kinds(written) and "items" not in written:
        written["items"] = {}
    return written


def _is_of_its_kind(keyword: str, value: object) -> bool:
    """Whether it can stand there: an API refuses all tools for one that is malformed."""
    if keyword in _TEXTS:
        return isinstance(value, str)
    if keyword in _NUMBERS:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return keyword != "enum" or (isinstance(value, list) and bool(cast("list[object]", value)))


def _without_lost_references(root: Schema, part: Any) -> Any:
    """A part of the written schema without references to what is not in it."""
    if isinstance(part, list):
        return [_without_lost_references(root, one) for one in cast("list[Any]", part)]
    if not is_schema(part):
        return part
    reference = part.get("$ref")
    is_lost = isinstance(reference, str) and reference != "#" and not follow(root, reference)
    return {
        key: _without_lost_references(root, value) for key, value in part.items() if not (is_lost and key == "$ref")
    }


def _kinds(schema: Schema) -> list[str]:
    kind = schema.get("type")
    return [kind] if isinstance(kind, str) else texts_of(kind)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
