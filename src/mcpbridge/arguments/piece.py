"""The piece of a schema that shows how some parameters are right: small enough for a model's context. Pure.

Only those parameters, and what is required. `$ref`s within the schema are put in place, since what they refer to is not
in the piece. Detail goes step by step until it fits: descriptions first, types last.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any, cast

from msgspec import Struct

from mcpbridge.arguments.check import Path, Schema
from mcpbridge.arguments.places import declared, follow, is_schema
from mcpbridge.wire.frame import encode

__all__ = ["MAX_CHARACTERS", "schema_piece"]

MAX_CHARACTERS = 1000
"""Of the piece as JSON."""

_ANNOTATIONS = frozenset({"title", "examples", "$comment", "$schema", "$id", "$defs", "definitions", "deprecated"})
_PARTS = 400
"""Schemas in one piece: `$ref`s that lead back to themselves unfold without end."""


class _Detail(Struct):
    """How much of each schema goes into the piece."""

    characters: int
    """Of a description."""
    options: int
    """Of an enum."""
    levels: int
    """Of schemas within one another."""
    members: int
    """Of an object."""
    parts: int = _PARTS
    """What is left of them."""


_DETAILS = ((1000, 100, 6, 100), (100, 20, 4, 40), (0, 10, 3, 20), (0, 5, 2, 10), (0, 3, 1, 10), (0, 0, 0, 5),
            (0, 0, 0, 1))  # fmt: skip

_Tree = dict[str | int, "_Tree"]


def schema_piece(root: Schema, paths: Iterable[Path]) -> Schema:
    """The piece of `root` about these places of a value; unknown places add nothing."""
    tree: _Tree = {}
    for path in paths:
        node = tree
        for key in path:
            node = node.setdefault(key, {})
    piece: Schema = {}
    for numbers in _DETAILS:
        piece = _about(root, root, tree, _Detail(*numbers))
        if len(encode(piece)) <= MAX_CHARACTERS:
            return piece
    return {"type": "object"}


def _about(root: Schema, schema: Schema, tree: _Tree, detail: _Detail) -> Schema:
    """An object or array schema, reduced to the members in `tree`; the whole if there are none."""
    schema = _in_place(root, schema)
    if not tree:
        return _whole(root, schema, detail, detail.levels)
    if all(isinstance(key, int) for key in tree):
        items = schema.get("items")
        if not is_schema(items):
            return _whole(root, schema, detail, detail.levels)
        merged: _Tree = {}
        for inner in tree.values():
            merged.update(inner)
        return {"type": "array", "items": _about(root, items, merged, detail)}
    properties = declared(root, schema)
    kept: Schema = {}
    for name, inner in tree.items():
        member = properties.get(str(name))
        if len(kept) < detail.members and member is not None:
            kept[str(name)] = _about(root, member, inner, detail) if is_schema(member) else member
    piece: Schema = {"type": "object", "properties": kept}
    required = _required(schema)
    if required:
        piece["required"] = required[: detail.members * 2]
    if schema.get("additionalProperties") is False:
        piece["additionalProperties"] = False
    return piece


def _whole(root: Schema, schema: Schema, detail: _Detail, levels: int) -> Schema:
    """A schema with as much detail as fits."""
    detail.parts -= 1
    piece: Schema = {}
    if detail.parts < 0:
        return piece
    for keyword, value in _in_place(root, schema).items():
        if keyword in _ANNOTATIONS:
            continue
        if keyword == "description":
            if detail.characters and isinstance(value, str):
                piece[keyword] = value if len(value) <= detail.characters else f"{value[: detail.characters]}…"
        elif keyword == "enum" and isinstance(value, list):
            several = cast("list[Any]", value)
            if detail.options:
                piece[keyword] = several[: detail.options]
                if len(several) > detail.options:
                    piece["$comment"] = f"the first {detail.options} of {len(several)}"
        elif keyword != "type" and isinstance(value, dict | list):
            if levels > 0:
                piece[keyword] = _inner(root, keyword, cast("object", value), detail, levels - 1)
        elif not isinstance(value, str) or len(value) <= 200:
            piece[keyword] = value
    return piece


def _inner(root: Schema, keyword: str, value: object, detail: _Detail, levels: int) -> object:
    """What stands under a keyword: schemas in a map or a list, one schema, or mere data."""
    if keyword in ("properties", "patternProperties", "dependentSchemas") and is_schema(value):
        named = islice(value.items(), detail.members)
        return {name: _whole(root, one, detail, levels) if is_schema(one) else one for name, one in named}
    if keyword in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
        several = cast("list[object]", value)
        return [_whole(root, one, detail, levels) if is_schema(one) else one for one in several]
    if keyword in ("items", "additionalProperties", "contains", "not", "if", "then", "else") and is_schema(value):
        return _whole(root, value, detail, levels)
    return value


def _in_place(root: Schema, schema: Schema) -> Schema:
    """What a `$ref` refers to, with what stands beside it."""
    for _ in range(8):
        if "$ref" not in schema:
            break
        rest = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
        schema = {**follow(root, schema["$ref"]), **rest}
    return {keyword: value for keyword, value in schema.items() if keyword != "$ref"}


def _required(schema: Schema) -> list[str]:
    required: object = schema.get("required")
    return (
        [name for name in cast("list[object]", required) if isinstance(name, str)] if isinstance(required, list) else []
    )
