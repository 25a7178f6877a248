"""Strict schemas of single values: enumerations with their types, and schemas that take null as well. Pure."""

from collections.abc import Sequence
from typing import cast

from mcpbridge.arguments.check import Schema
from mcpbridge.library.formats.schema_parts import Unsayable

__all__ = ["enumerated", "typed", "with_null"]


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
