"""Does a new schema accept everything that the old one did? Yes only where that can be proved. Pure.

A schema is a conjunction of its keywords. So the new one accepts all that the old one did if each of its keywords
follows from the old schema: the same keyword with the same or a narrower value, or types that it is not about.
References are compared as they are written, and count as equal only under equal definitions. Whatever is not
understood counts as no, which holds a call and never lets through one that fails.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import TypeGuard, cast

import msgspec

MOST_WORK = 100_000
"""Values in all parts that are compared, counted again each time; what needs more is undecided."""

_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
)
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_PARTS = frozenset(
    {
        *("items", "additionalItems", "prefixItems", "contains", "additionalProperties", "propertyNames"),
        *("not", "if", "then", "else", "anyOf", "allOf", "oneOf", "unevaluatedItems", "unevaluatedProperties"),
    }
)
_SCOPES = frozenset(
    {"$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor", "$vocabulary"}
)
"""What changes the meaning of references or of other keywords elsewhere."""
_LOCAL = ("#/$defs/", "#/definitions/")
_GROUPS = (
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
    ("properties", "patternProperties", "additionalProperties"),
    ("items", "prefixItems", "additionalItems"),
    ("minimum", "exclusiveMinimum"),
    ("maximum", "exclusiveMaximum"),
)
"""Keywords that mean something together only."""
_GROUP_OF = {keyword: group for group in _GROUPS for keyword in group}
_NUMBER, _STRING = frozenset({"number", "integer"}), frozenset({"string"})
_ARRAY, _OBJECT = frozenset({"array"}), frozenset({"object"})
_ABOUT: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), _STRING),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems", "uniqueItems"), _ARRAY),
    **dict.fromkeys(("properties", "patternProperties", "additionalProperties", "required"), _OBJECT),
    **dict.fromkeys(("minProperties", "maxProperties", "propertyNames"), _OBJECT),
}
"""The types that a keyword says something of; values of others pass."""

_Object = dict[str, object]
_decode = msgspec.json.Decoder(float_hook=Decimal).decode


def accepts_all(new: bytes, old: bytes) -> bool:
    """Whether every value that the old schema accepts is accepted by the new one, provably. Never raises."""
    try:
        new_schema: object = _decode(new)
        old_schema: object = _decode(old)
        if _key(new_schema) == _key(old_schema):
            return True
        if isinstance(new_schema, dict) and isinstance(old_schema, dict):
            return _Proof(cast("_Object", new_schema), cast("_Object", old_schema)).run()
        return _Proof({}, {}).includes(cast("object", new_schema), old_schema)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError, _UndecidedError):
        return False


class _UndecidedError(Exception):
    """The proof is given up."""


class _Proof:
    """The comparison of two whole schemas."""

    def __init__(self, new: _Object, old: _Object) -> None:
        self._new, self._old = new, old
        self._work = 0
        self._sizes: dict[int, int] = {}
        """By identity of a part; the two schemas hold all parts."""

    def run(self) -> bool:
        if _key(self._new.get("$schema")) != _key(self._old.get("$schema")):
            return False
        is_same = _key(_bare(self._new)) == _key(_bare(self._old))
        references: list[object] = []
        if not (_is_local(self._new, references) and _is_local(self._old, references)):
            return False
        if is_same:
            return True
        if references and any(
            _key(_bare_map(self._new.get(name))) != _key(_bare_map(self._old.get(name)))
            for name in ("$defs", "definitions")
        ):
            return False
        return self.includes(self._new, self._old)

    def includes(self, new: object, old: object) -> bool:
        """Whether `new` accepts all that `old` accepts."""
        self._work += self._size(new) + self._size(old)
        if self._work > MOST_WORK:
            raise _UndecidedError
        if new is True or old is False or new == {}:
            return True
        if old is True:
            old = {}
        if not (isinstance(new, dict) and isinstance(old, dict)):
            return False
        wide, narrow = cast("_Object", new), cast("_Object", old)
        if _key(_bare(wide)) == _key(_bare(narrow)):
            return True
        if any(
            word in schema
            for word in ("$ref", "unevaluatedProperties", "unevaluatedItems")
            for schema in (wide, narrow)
        ):
            return False
        if all(self._follows(keyword, wide, narrow) for keyword in wide):
            return True
        branches = narrow.get("anyOf")
        return _is_filled(branches) and all(self.includes(wide, branch) for branch in branches)

    def _follows(self, keyword: str, new: _Object, old: _Object) -> bool:
        """Whether this keyword of `new` holds for all that `old` accepts."""
        if keyword in _ANNOTATIONS or keyword in ("$schema", "$defs", "definitions"):
            return True
        group = _GROUP_OF.get(keyword, (keyword,))
        if _key(_bare({name: new[name] for name in group if name in new})) == _key(
            _bare({name: old[name] for name in group if name in old})
        ):
            return True
        types = _types(old)
        if types is not None and keyword in _ABOUT and not types & _ABOUT[keyword]:
            return True
        value = new[keyword]
        match keyword:
            case "type":
                wanted = _types({"type": value})
                return types is not None and wanted is not None and types <= _widened(wanted)
            case "enum" | "const":
                allowed, possible = _values(new, keyword), _possible(old)
                return possible is not None and allowed is not None and possible <= allowed
            case "minimum" | "exclusiveMinimum":
                return _is_bounded(keyword, value, old, "minimum", "exclusiveMinimum", 1)
            case "maximum" | "exclusiveMaximum":
                return _is_bounded(keyword, value, old, "maximum", "exclusiveMaximum", -1)
            case "minLength" | "minItems" | "minProperties":
                least = old.get(keyword, 0)
                return _is_number(value) and _is_number(least) and value <= least
            case "maxLength" | "maxItems" | "maxProperties":
                most = old.get(keyword)
                return _is_number(value) and _is_number(most) and most <= value
            case "uniqueItems":
                return value is False
            case "required":
                return _is_texts(value) and _is_texts(before := old.get("required", [])) and {*value} <= {*before}
            case "properties" | "additionalProperties":
                return self._includes_members(new, old)
            case "items":
                return self._includes_items(new, old)
            case "allOf":
                return _is_filled(value) and all(self.includes(part, old) for part in value)
            case "anyOf":
                return _is_filled(value) and self._is_in_a_branch(value, old)
            case _:
                return False

    def _size(self, part: object) -> int:
        """How many values are in it."""
        if not part or not isinstance(part, dict | list):
            return 1
        known = self._sizes.get(id(cast("object", part)))
        if known is None:
            inner = cast("_Object", part).values() if isinstance(part, dict) else cast("list[object]", part)
            known = self._sizes[id(cast("object", part))] = 1 + sum(self._size(one) for one in inner)
        return known

    def _includes_members(self, new: _Object, old: _Object) -> bool:
        wide, narrow = new.get("properties", {}), old.get("properties", {})
        if "patternProperties" in new or "patternProperties" in old:
            return False
        if not (isinstance(wide, dict) and isinstance(narrow, dict)):
            return False
        wide, narrow = cast("_Object", wide), cast("_Object", narrow)
        new_rest, old_rest = new.get("additionalProperties", True), old.get("additionalProperties", True)
        return self.includes(new_rest, old_rest) and all(
            self.includes(wide.get(name, new_rest), narrow.get(name, old_rest)) for name in {*wide, *narrow}
        )

    def _includes_items(self, new: _Object, old: _Object) -> bool:
        if any(word in schema for word in ("prefixItems", "additionalItems") for schema in (new, old)):
            return False
        return self.includes(new["items"], old.get("items", True))

    def _is_in_a_branch(self, branches: list[object], old: _Object) -> bool:
        if any(self.includes(branch, old) for branch in branches):
            return True
        narrow = old.get("anyOf")
        return _is_filled(narrow) and all(any(self.includes(wide, one) for wide in branches) for one in narrow)


def _is_bounded(keyword: str, value: object, old: _Object, closed: str, exclusive: str, sign: int) -> bool:
    """Whether one of the bounds of `old` is at least as narrow as this one of the new schema."""
    bounds = [(name, old[name]) for name in (closed, exclusive) if name in old]
    if not _is_number(value) or not all(_is_number(bound) for _, bound in bounds):
        return False  # in draft 4 the exclusive one is a boolean that changes the other
    for name, bound in bounds:
        if not _is_number(bound):
            return False
        distance = (bound - value) * sign
        if distance > 0 or (distance == 0 and (keyword == closed or name == exclusive)):
            return True
    return False


def _types(schema: _Object) -> frozenset[str] | None:
    """The types that its values have; None if it does not say."""
    if "type" in schema:
        value = schema["type"]
        if isinstance(value, str):
            return frozenset({value})
        return frozenset(value) if _is_texts(value) else None
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return frozenset(_type_of(value) for value in cast("list[object]", values)) if isinstance(values, list) else None


def _type_of(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "null" if value is None else "number"


def _widened(types: frozenset[str]) -> frozenset[str]:
    return types | {"integer"} if "number" in types else types


def _values(schema: _Object, keyword: str) -> frozenset[object] | None:
    value = [schema["const"]] if keyword == "const" else schema["enum"]
    return frozenset(_key(one) for one in cast("list[object]", value)) if isinstance(value, list) else None


def _possible(schema: _Object) -> frozenset[object] | None:
    """All values that can be accepted; None where that is not listed."""
    for keyword in ("const", "enum"):
        if keyword in schema:
            return _values(schema, keyword)
    return None


def _bare(schema: object) -> object:
    """A schema without what accepts or refuses nothing."""
    if not isinstance(schema, dict):
        return schema
    return {
        name: _bare_map(value) if name in _MAPS else _bare_part(value) if name in _PARTS else value
        for name, value in cast("_Object", schema).items()
        if name not in _ANNOTATIONS
    }


def _bare_map(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {name: _bare(one) for name, one in cast("_Object", value).items()}


def _bare_part(value: object) -> object:
    return [_bare(one) for one in cast("list[object]", value)] if isinstance(value, list) else _bare(value)


def _is_local(value: object, references: list[object]) -> bool:
    """Whether nothing inside changes what a reference means, and all go to the definitions. Collects references."""
    if isinstance(value, list):
        return all(_is_local(one, references) for one in cast("list[object]", value))
    if not isinstance(value, dict):
        return True
    members = cast("_Object", value)
    if any(name in _SCOPES and isinstance(one, str | bool) for name, one in members.items()):
        return False
    if isinstance(target := members.get("$ref"), str):
        references.append(target)
        if not target.startswith(_LOCAL):
            return False
    return all(_is_local(one, references) for one in members.values())


def _key(value: object) -> object:
    """Equal for two values only if they are the same JSON; numbers by how they are written."""
    if isinstance(value, dict):
        return "object", frozenset((name, _key(one)) for name, one in cast("_Object", value).items())
    if isinstance(value, list):
        return "array", tuple(_key(one) for one in cast("list[object]", value))
    return type(value).__name__, str(value)


def _is_number(value: object) -> TypeGuard[int | Decimal]:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_filled(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list) and len(cast("list[object]", value)) > 0


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[object]", value))
