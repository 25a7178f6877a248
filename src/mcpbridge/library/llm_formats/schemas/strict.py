"""The strict form of an input schema: what an API can hold its model to while it writes the arguments. Pure.

The promise, for a schema that has a strict form:

- Every value that the schema takes, and that has only properties that it describes, is taken by the strict form once
  the missing optional properties are added as null (`Dialect.requires_all`; else as it is).
- Every value that the strict form takes is, without the nulls that were not meant (`from_strict.py`), a value that the
  schema takes, unless it breaks one of the rules in `Strict.dropped`, which the dialect cannot express. The bridge
  checks arguments against the schema itself, so such a call is refused with the reason.

A schema that describes `properties` or `items` without a `type` is read as one of objects or arrays alone. Formats are
not asserted, as the bridge does not.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from mcpbridge.library.llm_formats.schemas.from_strict import has_limits
from mcpbridge.library.llm_formats.schemas.parts import (
    ANNOTATIONS,
    Unsayable,
    followed,
    in_one_piece,
    merged,
    object_of,
    texts_of,
    types_of,
)
from mcpbridge.library.llm_formats.schemas.strict_limits import Dialect
from mcpbridge.pipeline.validation.schema_check import Schema
from mcpbridge.pipeline.validation.schema_paths import is_schema


def enumerated(flat: Schema) -> list[object] | None:
    """The values that `enum` and `const` leave; None where there is neither."""
    listed: object = flat.get("enum")
    values = list(cast("list[object]", listed)) if isinstance(listed, list) else None
    if "const" not in flat:
        return values
    return [flat["const"]] if values is None else [value for value in values if _is_same(value, flat["const"])]


def typed(values: Sequence[object], kinds: Sequence[str] | None, place: str) -> Schema:
    """A schema that takes exactly these values, as far as they are of one of the types.

    Raises:
        Unsayable: there is none, or one is no scalar.
    """
    by_type: dict[str, list[object]] = {}
    for value in values:
        kind = _type_of(value, kinds)
        if kind is None:
            raise Unsayable(f"{place}lists values that are objects or arrays")
        if kind:
            by_type.setdefault(kind, []).append(value)
    has_null = by_type.pop("null", None) is not None
    written: list[Schema] = [{"type": kind, "enum": each} for kind, each in by_type.items()]
    if not written:
        if has_null:
            return {"type": "null"}
        raise Unsayable(f"{place}takes no value")
    whole: Schema = written[0] if len(written) == 1 else {"anyOf": written}
    return with_null(whole) if has_null else whole


def with_null(written: Schema) -> Schema:
    """A strict schema that takes what this one takes, or null."""
    kind = written.get("type")
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return written
    if isinstance(kind, str) and kind not in ("object", "array"):
        nullable: Schema = {**written, "type": [kind, "null"]}
        if "enum" in written:
            nullable["enum"] = [*written["enum"], None]
        return nullable
    description: Schema = {"description": written["description"]} if "description" in written else {}
    bare = {key: value for key, value in written.items() if key != "description"}
    branches: list[Schema] = list(bare["anyOf"]) if bare.keys() == {"anyOf"} else [bare]
    if not any(_takes_null(one) for one in branches):
        branches.append({"type": "null"})
    return {"anyOf": branches, **description}


def _takes_null(written: Schema) -> bool:
    kind = written.get("type")
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _type_of(value: object, kinds: Sequence[str] | None) -> str | None:
    """Which type a value is listed under; "" where it is of none of these, None where it is no scalar."""
    if value is None or isinstance(value, bool | str):
        own = "null" if value is None else "boolean" if isinstance(value, bool) else "string"
        return own if kinds is None or own in kinds else ""
    if not isinstance(value, int | float):
        return None
    is_whole = isinstance(value, int) or value.is_integer()
    if kinds is None:
        return "integer" if is_whole else "number"
    return "number" if "number" in kinds else "integer" if "integer" in kinds and is_whole else ""


def _is_same(one: object, other: object) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


_UNSAYABLE = (
    *("not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "patternProperties"),
    *("prefixItems", "$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor"),
)
"""Keywords whose rules would change what the model may write, and that no strict mode has."""
_NEVER_EMPTY = ("not", "$dynamicRef", "$recursiveRef")
"""Of these, those that say something even if they hold an empty schema."""


class Strict(Struct, frozen=True):
    """A schema in strict form."""

    schema: Schema
    dropped: tuple[str, ...]
    """Keywords whose rules are only checked when the call is made, in order of their first place."""


def strict_form(schema: Mapping[str, Any], dialect: Dialect) -> Strict:
    """The strict form of a tool's input schema.

    Raises:
        Unsayable: it has none; says where and why.
    """
    return _Writing(dict(schema), dialect).whole()


class _Writing:
    """One schema on its way."""

    def __init__(self, root: Schema, dialect: Dialect) -> None:
        self._root, self._dialect = root, dialect
        self._definitions: dict[str, Schema] = {}
        self._names: dict[str, str] = {}
        self._open: set[str] = set()
        """References that are being written: met again, they are recursive."""
        self._dropped: dict[str, None] = {}

    def whole(self) -> Strict:
        root = {key: value for key, value in self._root.items() if key not in ("$schema", "$id")}
        flat = self._piece(root, "")
        while "$ref" in flat:
            flat = self._piece({**followed(self._root, flat["$ref"]), **_described(flat)}, "")
        flat = self._without_mere_demands(flat)
        if "anyOf" in flat or "oneOf" in flat:
            raise Unsayable("is one of several schemas as a whole")
        if types_of(flat) not in (None, ["object"]):
            raise Unsayable("is not of type object")
        self._refuse_unsayable(flat, "")
        written = self._object(flat, "", is_root=True)
        if self._definitions:
            written["$defs"] = self._definitions
        return Strict(written, tuple(self._dropped))

    def _piece(self, schema: Schema, place: str) -> Schema:
        try:
            return in_one_piece(self._root, schema)
        except Unsayable as why:
            raise Unsayable(f"{_at(place)}{why}") from None

    def _write(self, schema: object, place: str) -> Schema:
        """Any part of the schema but its root."""
        if not is_schema(schema):
            raise Unsayable(f"{_at(place)}takes {'any' if schema is True else 'no'} value")
        flat = self._without_mere_demands(self._piece(schema, place))
        self._refuse_unsayable(flat, place)
        if "$ref" in flat:
            return _with_description(self._reference(str(flat["$ref"]), place), self._description(flat, ()))
        for keyword in ("anyOf", "oneOf"):
            if keyword in flat:
                return self._alternatives(flat, keyword, place)
        return self._of_types(flat, place)

    def _refuse_unsayable(self, flat: Schema, place: str) -> None:
        for keyword in _UNSAYABLE:
            if keyword in flat and (keyword in _NEVER_EMPTY or flat[keyword] not in ({}, [])):
                raise Unsayable(f"{_at(place)}has `{keyword}`")

    def _without_mere_demands(self, flat: Schema) -> Schema:
        """Without alternatives that only say which of the properties are required."""
        for keyword in ("anyOf", "oneOf"):
            branches: object = flat.get(keyword)
            if isinstance(branches, list) and "properties" in flat:
                each = cast("list[object]", branches)
                if all(is_schema(one) and one.keys() <= {"required", *ANNOTATIONS} for one in each):
                    self._dropped[keyword] = None
                    flat = {key: value for key, value in flat.items() if key != keyword}
        return flat

    def _reference(self, reference: str, place: str) -> Schema:
        if reference in self._open and not self._dialect.has_recursion:
            raise Unsayable(f"{_at(place)}refers to itself")
        if reference == "#":
            return {"$ref": "#"} if self._dialect.has_recursion else self._refuse_itself(place)
        if reference not in self._names:
            target = followed(self._root, reference)
            last = re.sub(r"[^a-zA-Z0-9_-]", "_", reference.rsplit("/", 1)[-1]) or "part"
            name = last
            while name in self._definitions:
                name = f"{last}_{len(self._definitions)}"
            self._names[reference] = name
            self._definitions[name] = {}
            self._open.add(reference)
            self._definitions[name] = self._write(target, place)
            self._open.discard(reference)
        return {"$ref": f"#/$defs/{self._names[reference]}"}

    def _refuse_itself(self, place: str) -> Schema:
        raise Unsayable(f"{_at(place)}refers to itself")

    def _alternatives(self, flat: Schema, keyword: str, place: str) -> Schema:
        branches = flat[keyword]
        if not isinstance(branches, list) or not branches:
            raise Unsayable(f"{_at(place)}has no alternatives in `{keyword}`")
        beside = {key: value for key, value in flat.items() if key != keyword and key not in ANNOTATIONS}
        if "anyOf" in beside or "oneOf" in beside:
            raise Unsayable(f"{_at(place)}has both `anyOf` and `oneOf`")
        written: list[Schema] = []
        for branch in cast("list[object]", branches):
            if not is_schema(branch):
                raise Unsayable(f"{_at(place)}takes any value")
            try:
                whole = merged(self._root, branch, beside) if beside else branch
            except Unsayable as why:
                raise Unsayable(f"{_at(place)}{why}") from None
            one = self._write(whole, place)
            written += one["anyOf"] if one.keys() == {"anyOf"} else [one]
        if keyword == "oneOf" and len(written) > 1:
            self._dropped["oneOf"] = None  # that no two of them may hold at once
        whole = {"anyOf": written} if len(written) > 1 else written[0]
        return _with_description(whole, self._description(flat, ()))

    def _of_types(self, flat: Schema, place: str) -> Schema:
        values = enumerated(flat)
        kinds = types_of(flat) or _implied(flat)
        if values is None and kinds is None:
            raise Unsayable(f"{_at(place)}takes values of any type")
        if values is not None:
            if "pattern" in flat:
                self._dropped["pattern"] = None
            within = [value for value in values if has_limits(flat, value)]
            return _with_description(typed(within, kinds, _at(place)), self._description(flat, ()))
        kinds = kinds or []
        written = [self._of_type(flat, kind, place) for kind in kinds if kind != "null"]
        if not written:
            return _with_description({"type": "null"}, self._description(flat, ()))
        whole = written[0] if len(written) == 1 else {"anyOf": written}
        if "null" in kinds:
            whole = with_null(whole)
        return _with_description(whole, self._description(flat, kinds))

    def _of_type(self, flat: Schema, kind: str, place: str) -> Schema:
        if kind == "object":
            return self._object(flat, place)
        written: Schema = {"type": kind}
        if kind == "array":
            if not is_schema(flat.get("items")):
                raise Unsayable(f"{_at(place)}has elements of any kind")
            written["items"] = self._write(flat["items"], f"{place}[]")
        return {**written, **self._dialect.rules(flat, kind)}

    def _object(self, flat: Schema, place: str, *, is_root: bool = False) -> Schema:
        properties = object_of(flat.get("properties"))
        additional = flat.get("additionalProperties", flat.get("unevaluatedProperties"))
        if additional not in (None, False) or (not properties and additional is None and not is_root):
            raise Unsayable(f"{_at(place)}takes properties of any name")
        required = texts_of(flat.get("required"))
        unknown = [name for name in required if name not in properties]
        if unknown:
            raise Unsayable(f"{_at(place)}requires `{unknown[0]}`, which it does not describe")
        written: dict[str, Schema] = {}
        for name, one in properties.items():
            if one is False and name not in required:
                continue
            inner = self._write(one, f"{place}.{name}" if place else name)
            is_nullable = self._dialect.requires_all and name not in required
            written[name] = with_null(inner) if is_nullable else inner
        demanded = list(written) if self._dialect.requires_all else required
        whole: Schema = {"type": "object", "properties": written, "required": demanded, "additionalProperties": False}
        return _with_description(whole, self._description(flat, ("object",))) if is_root else whole

    def _description(self, flat: Schema, kinds: Iterable[str]) -> str:
        text, lost = self._dialect.description(flat, kinds)
        self._dropped.update(dict.fromkeys(lost))
        return text


def _implied(flat: Schema) -> list[str] | None:
    return ["object"] if "properties" in flat else ["array"] if "items" in flat else None


def _described(flat: Schema) -> Schema:
    return {key: value for key, value in flat.items() if key in ("description", "default")}


def _with_description(written: Schema, text: str) -> Schema:
    """A reference stands alone in strict schemas, so what is said of it is said around it."""
    if not text:
        return written
    return {"anyOf": [written], "description": text} if "$ref" in written else {**written, "description": text}


def _at(place: str) -> str:
    return f"`{place}` " if place else ""
