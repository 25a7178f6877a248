"""Join the parts of a JSON schema: follow references and merge `allOf`. Pure.

The joined schema takes exactly the values that all parts take together; otherwise `Unsayable` says why there is none.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from mcpbridge.pipeline.validation.schema_check import Schema
from mcpbridge.pipeline.validation.schema_paths import follow, is_schema

ANNOTATIONS = frozenset(
    {"$schema", "$comment", "title", "description", "default", "examples", "example", "deprecated", "readOnly"}
    | {"writeOnly", "$defs", "definitions"}
)
"""Keywords that hold for every value. Extensions (`x-…`) do too."""

TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")

_MAX_FOLLOWED = 32
"""References and `allOf`s within each other before one value's schema is given up."""


class Unsayable(Exception):
    """A schema, or a part of it, that a dialect has no words for; the message says why."""


def object_of(value: object) -> Mapping[str, Any]:
    """A JSON object; empty when the value is none."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def texts_of(value: object) -> list[str]:
    """The texts in a list, each once; empty when the value is no list."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return list(dict.fromkeys(item for item in items if isinstance(item, str)))


def types_of(schema: Schema) -> list[str] | None:
    """What `type` names; None where it is not there.

    Raises:
        Unsayable: it names something that is no type.
    """
    if "type" not in schema:
        return None
    kind = schema["type"]
    named = [kind] if isinstance(kind, str) else texts_of(kind)
    if not named or any(one not in TYPES for one in named):
        raise Unsayable("has a `type` that is none of JSON's")
    return named


def in_one_piece(root: Schema, schema: Schema, levels: int = 0) -> Schema:
    """The same schema without `allOf`, and with a `$ref` only where it stands alone (but for annotations).

    Raises:
        Unsayable: it cannot be written so.
    """
    if levels > _MAX_FOLLOWED:
        raise Unsayable("refers to itself without end")
    parts = schema.get("allOf")
    if isinstance(parts, list) and parts:
        whole: Schema = {key: value for key, value in schema.items() if key != "allOf"}
        for part in cast("list[object]", parts):
            if part is True:
                continue
            if not is_schema(part):
                raise Unsayable("takes no value")
            whole = merged(root, whole, part, levels + 1)
        return in_one_piece(root, whole, levels + 1)
    if "$ref" in schema and any(_asserts(key) for key in schema if key != "$ref"):
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return merged(root, rest, followed(root, schema["$ref"]), levels + 1)
    return schema


def followed(root: Schema, reference: object) -> Schema:
    """What a reference within the schema leads to.

    Raises:
        Unsayable: it leads elsewhere, or nowhere.
    """
    found = follow(root, reference)
    if found or reference == "#":
        return found
    raise Unsayable(f"refers to {reference!r}, which is not a part of it that says anything")


def _asserts(keyword: str) -> bool:
    return keyword not in ANNOTATIONS and not keyword.startswith("x-")


def merged(root: Schema, one: Schema, other: Schema, levels: int = 0) -> Schema:
    """What holds when both do. Annotations are the first's, where both have them.

    Raises:
        Unsayable: both say something of a kind that cannot be said at once.
    """
    if not any(_asserts(key) for key in one) and "$ref" in other and "allOf" not in other:
        return {**other, **one}
    one, other = _without_reference(root, one, levels), _without_reference(root, other, levels)
    _refuse_strangers(one, other)
    _refuse_strangers(other, one)
    whole: Schema = {**other, **one}
    for key in one.keys() & other.keys():
        if _asserts(key) and repr(one[key]) != repr(other[key]):  # unlike `==`, it tells true from 1
            if key not in _MERGING:
                raise Unsayable(f"says two things of `{key}`")
            whole[key] = _MERGING[key](one[key], other[key])
    return whole


def _without_reference(root: Schema, schema: Schema, levels: int) -> Schema:
    flat = in_one_piece(root, schema, levels + 1)
    if "$ref" not in flat:
        return flat
    rest = {key: value for key, value in flat.items() if key != "$ref"}
    return {**_without_reference(root, followed(root, flat["$ref"]), levels + 1), **rest}


def _refuse_strangers(closed: Schema, other: Schema) -> None:
    """One that takes no further properties excludes those that only the other describes."""
    if closed.get("additionalProperties", True) is True:
        return
    strangers = object_of(other.get("properties")).keys() - object_of(closed.get("properties")).keys()
    if strangers:
        raise Unsayable("combines parts that exclude each other's properties")


def _types(one: object, other: object) -> object:
    first, second = (types_of({"type": value}) or [] for value in (one, other))
    both = [kind for kind in first if kind in second or (kind == "integer" and "number" in second)]
    both += [kind for kind in second if kind == "integer" and "number" in first and kind not in both]
    if not both:
        raise Unsayable("combines parts of different types")
    return both[0] if len(both) == 1 else both


def _properties(one: object, other: object) -> object:
    first, second = object_of(one), object_of(other)
    whole = {**first, **second}
    for name in first.keys() & second.keys():
        if first[name] != second[name]:
            whole[name] = {"allOf": [first[name], second[name]]}
    return whole


def _enums(one: object, other: object) -> object:
    first, second = (cast("list[object]", value) if isinstance(value, list) else [] for value in (one, other))
    return [
        value
        for value in first
        if any(value == item and isinstance(value, bool) == isinstance(item, bool) for item in second)
    ]


def _both(one: object, other: object) -> object:
    return {"allOf": [one, other]}


def _closed(one: object, other: object) -> object:
    if one is False or other is False:
        return False
    return other if one is True else one if other is True else _both(one, other)


def _larger(one: object, other: object) -> object:
    return max(_number(one), _number(other))


def _smaller(one: object, other: object) -> object:
    return min(_number(one), _number(other))


def _number(value: object) -> float:
    if isinstance(value, int | float):
        return value
    raise Unsayable(f"has the limit {value!r}, which is no number")


def _names(one: object, other: object) -> object:
    return list(dict.fromkeys([*texts_of(one), *texts_of(other)]))


_MERGING: dict[str, Callable[[Any, Any], object]] = {
    "type": _types,
    "properties": _properties,
    "required": _names,
    "enum": _enums,
    "items": _both,
    "additionalProperties": _closed,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), _larger),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), _smaller),
}
