"""Whether one JSON schema accepts all that another one does. Pure, and conservative: what is not clear is a no.

A schema is a conjunction of its keywords, so each keyword of the new one must follow from the old one. It does if both
have it alike, or by one of the rules here. References are not followed: where there are some, only the same schema
counts.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from mcpbridge.catalog.definitions.pins.canonical import canonical

Schema = Mapping[str, Any]

_ANNOTATIONS = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$defs",
        "definitions",
    }
)
"""Keywords that accept everything; definitions do where nothing refers to them."""
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$id", "id", "$anchor", "$dynamicAnchor"})
_TYPES = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
_GROUPS = (
    frozenset({"properties", "patternProperties", "additionalProperties"}),
    frozenset({"items", "prefixItems", "additionalItems"}),
    frozenset({"contains", "minContains", "maxContains"}),
    frozenset({"if", "then", "else"}),
    frozenset({"minimum", "exclusiveMinimum"}),
    frozenset({"maximum", "exclusiveMaximum"}),
)
"""Keywords of which one changes what another means."""
_NEVER = frozenset({"unevaluatedProperties", "unevaluatedItems"})
"""Keywords that depend on the whole schema around them."""


def accepts_all_of(old: bytes, new: bytes) -> bool:
    """Whether it is certain that `new` accepts whatever `old` accepts; both are JSON texts."""
    if canonical(old) == canonical(new):
        return True
    try:
        before, after = json.loads(old), json.loads(new)
        if _has_references(before) or _has_references(after) or _dialect(before) != _dialect(after):
            return False
        return _includes(before, after)
    except (ValueError, RecursionError):
        return False


def _dialect(schema: object) -> object:
    return cast("Schema", schema).get("$schema") if isinstance(schema, dict) else None


def _has_references(value: object) -> bool:
    """Whether a member anywhere could be a reference; one in an example counts too."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return any(
            (key in _REFERENCES and isinstance(inner, str)) or _has_references(inner) for key, inner in members.items()
        )
    return isinstance(value, list) and any(map(_has_references, cast("list[object]", value)))


def _includes(old: object, new: object) -> bool:
    if old is False or new is True:
        return True
    if old is True:
        old = cast("object", {})
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    first, second = cast("Schema", old), cast("Schema", new)
    return all(_follows(key, first, second) for key in second if key not in _ANNOTATIONS and key != "$schema")


def _follows(key: str, old: Schema, new: Schema) -> bool:
    """Whether a keyword of the new schema excludes nothing that the old one accepts."""
    group = next((group for group in _GROUPS if key in group), frozenset({key}))
    is_same = all(_text(old, one) == _text(new, one) for one in group)
    if is_same and key not in _NEVER:
        return True
    rule = _RULES.get(key)
    return rule is not None and rule(old, new)


def _text(schema: Schema, key: str) -> bytes | None:
    return canonical(json.dumps(schema[key]).encode()) if key in schema else None


def _are_within(values: object, others: object) -> bool:
    """Whether both are lists, and each value of the first is in the second."""
    if not isinstance(values, list) or not isinstance(others, list):
        return False
    return _forms(cast("list[object]", values)) <= _forms(cast("list[object]", others))


def _forms(values: list[object]) -> set[bytes]:
    return {canonical(json.dumps(one).encode()) for one in values}


def _types(schema: Schema) -> frozenset[str] | None:
    """The types that a schema accepts; None: that is not clear."""
    declared = schema.get("type")
    if declared is None:
        return _TYPES if "type" not in schema else None
    named: object = [declared] if isinstance(declared, str) else declared
    if not isinstance(named, list) or not all(
        isinstance(one, str) and one in _TYPES for one in cast("list[object]", named)
    ):
        return None
    types = frozenset(cast("list[str]", named))
    return types | {"integer"} if "number" in types else types


def _type(old: Schema, new: Schema) -> bool:
    before, after = _types(old), _types(new)
    return before is not None and after is not None and before <= after


def _enum(old: Schema, new: Schema) -> bool:
    return _are_within([old["const"]] if "const" in old else old.get("enum"), new["enum"])


def _const(old: Schema, new: Schema) -> bool:
    return _are_within([old["const"]] if "const" in old else old.get("enum"), [new["const"]])


def _required(old: Schema, new: Schema) -> bool:
    return _are_within(new["required"], old.get("required", []))


def _members(schema: Schema) -> Schema | None:
    """The schemas of named members; None: others apply by pattern, or they cannot be read."""
    members = schema.get("properties", {})
    return None if "patternProperties" in schema or not isinstance(members, dict) else cast("Schema", members)


def _properties(old: Schema, new: Schema) -> bool:
    before, after = _members(old), _members(new)
    if before is None or after is None:
        return False
    rest = old.get("additionalProperties", True)
    return all(_includes(before.get(name, rest), one) for name, one in after.items())


def _additional(old: Schema, new: Schema) -> bool:
    before, after, rest = _members(old), _members(new), new["additionalProperties"]
    if rest is True or rest == {}:
        return True
    if before is None or after is None or not _includes(old.get("additionalProperties", True), rest):
        return False
    return all(_includes(one, rest) for name, one in before.items() if name not in after)


def _items(old: Schema, new: Schema) -> bool:
    if any(key in schema for key in ("prefixItems", "additionalItems") for schema in (old, new)):
        return False
    return _includes(old.get("items", True), new["items"])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _lower(key: str, least: int | None) -> Callable[[Schema, Schema], bool]:
    def rule(old: Schema, new: Schema) -> bool:
        before, after = old.get(key, least), new[key]
        return _is_number(before) and _is_number(after) and after <= before

    return rule


def _upper(key: str) -> Callable[[Schema, Schema], bool]:
    def rule(old: Schema, new: Schema) -> bool:
        before, after = old.get(key), new[key]
        return _is_number(before) and _is_number(after) and after >= before

    return rule


def _minimum(key: str, other: str) -> Callable[[Schema, Schema], bool]:
    """Of numbers, whose bounds may be exclusive; one that is a boolean is of an older dialect."""
    compare = _lower(key, None) if key.endswith("inimum") else _upper(key)

    def rule(old: Schema, new: Schema) -> bool:
        if any(isinstance(schema.get(one), bool) for schema in (old, new) for one in (key, other)):
            return False
        return compare(old, new)

    return rule


_RULES: Mapping[str, Callable[[Schema, Schema], bool]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "minimum": _minimum("minimum", "exclusiveMinimum"),
    "exclusiveMinimum": _minimum("exclusiveMinimum", "minimum"),
    "maximum": _minimum("maximum", "exclusiveMaximum"),
    "exclusiveMaximum": _minimum("exclusiveMaximum", "maximum"),
    **{key: _lower(key, 0) for key in ("minLength", "minItems", "minProperties")},
    **{key: _upper(key) for key in ("maxLength", "maxItems", "maxProperties")},
    "uniqueItems": lambda old, new: new["uniqueItems"] is False,
}
