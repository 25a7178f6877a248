"""What a JSON Schema says, as Python annotations for a model to read. Pure, and bounded whatever the schema is.

Lossy where a short word does for many: what an annotation leaves out stands in a comment, in a notation of its own
(`{id: int, name?: str}`), and the rest the check of the arguments tells when it matters.
"""

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

__all__ = ["ANY", "Types", "one_line", "properties_of", "python_name"]

ANY = "Any"

_MOST_NODES = 500
"""Schemas within one schema that are looked at; what comes after that is `Any`."""
_DEEPEST, _MOST_HOPS = 5, 8
_MOST_MEMBERS, _MOST_BRANCHES, _MOST_VALUES = 24, 8, 16
_LONGEST_LITERAL = 240
_LONGEST_NAME = 200

_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_NOT_IN_NAMES = re.compile(r"[^0-9A-Za-z_]")

Schema = Mapping[str, Any]


def python_name(name: str) -> str:
    """The identifier under which Python knows what is called so: the name itself, if it is one."""
    found = _NOT_IN_NAMES.sub("_", name[:_LONGEST_NAME]) or "_"
    if found[0].isdigit():
        found = f"_{found}"
    return f"{found}_" if keyword.iskeyword(found) else found


def one_line(text: object, most: int) -> str:
    """A text of somebody else in one line, at most so long, that no comment or string of Python can end at."""
    if not isinstance(text, str):
        return ""
    flat = " ".join(text[: most * 4].split())
    flat = "".join(char for char in flat if char.isprintable())
    return flat if len(flat) <= most else f"{flat[: most - 1].rstrip()}…"


def properties_of(schema: Schema) -> tuple[dict[str, object], frozenset[str]]:
    """The members of an object and the names of those that are required; neither is trusted to be well-formed."""
    properties: object = schema.get("properties")
    required: object = schema.get("required")
    names = cast("Sequence[object]", required) if isinstance(required, list | tuple) else ()
    needed = frozenset(name for name in names if isinstance(name, str))
    found = cast("Mapping[object, object]", properties if isinstance(properties, Mapping) else {})
    return {name: inner for name, inner in found.items() if isinstance(name, str)}, needed


class Types:
    """The types in one schema."""

    def __init__(self, root: object) -> None:
        """`root`: what `$ref` is relative to."""
        self._root, self._left = root, _MOST_NODES

    def annotation(self, schema: object) -> str:
        """A Python expression: `str`, `list[int] | None`, `dict[str, Any]`, `Literal["a", "b"]`."""
        return self._type(schema, 0, inline=False)

    def notation(self, schema: object) -> str:
        """What is in it, where an annotation says no more than `dict[str, Any]`; empty if that is all there is."""
        told = self._type(schema, 0, inline=True)
        return told if "{" in told else ""

    def resolved(self, schema: object) -> Schema | None:
        """The schema that is meant: behind its `$ref`, with what `allOf` adds. None: any value will do."""
        for _ in range(_MOST_HOPS):
            if not isinstance(schema, Mapping):
                return None
            found = cast("Schema", schema)
            ref: object = found.get("$ref")
            if not isinstance(ref, str):
                return self._with_parts(found)
            beside = {name: value for name, value in found.items() if name != "$ref"}
            target = self._at(ref)
            schema = {**cast("Schema", target), **beside} if isinstance(target, Mapping) else beside
        return None

    def _with_parts(self, schema: Schema) -> Schema:
        parts: object = schema.get("allOf")
        if not isinstance(parts, list) or not parts:
            return schema
        merged = {name: value for name, value in schema.items() if name != "allOf"}
        properties, required = properties_of(merged)
        for part in cast("list[object]", parts)[:_MOST_BRANCHES]:
            self._left -= 1
            ref: object = cast("Schema", part).get("$ref") if isinstance(part, Mapping) else None
            found = cast("object", self._at(ref) if isinstance(ref, str) else part)
            if isinstance(found, Mapping) and self._left > 0:
                own = cast("Schema", found)
                more, needed = properties_of(own)
                properties, required = {**more, **properties}, required | needed
                merged = {**own, **merged}
        return {**merged, "properties": properties, "required": sorted(required)} if properties else merged

    def _at(self, ref: str) -> object:
        if ref == "#":
            return self._root
        if not ref.startswith("#/") or len(ref) > _LONGEST_LITERAL * 2:
            return None
        found: Any = self._root
        for step in unquote(ref[2:]).split("/"):
            if not isinstance(found, Mapping):
                return None
            found = cast("Schema", found).get(step.replace("~1", "/").replace("~0", "~"))
        return found

    def _type(self, schema: object, depth: int, *, inline: bool) -> str:
        self._left -= 1
        found = self.resolved(schema) if depth <= _DEEPEST and self._left > 0 else None
        if found is None:
            return ANY
        said = self._said(found, depth, inline=inline)
        return f"{said} | None" if found.get("nullable") is True and not _has_none(said) and said != ANY else said

    def _said(self, schema: Schema, depth: int, *, inline: bool) -> str:
        values: object = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and (literal := _literal(cast("list[object]", values))):
            return literal
        kind: object = schema.get("type")
        if kind is None:
            for name in ("anyOf", "oneOf"):
                branches: object = schema.get(name)
                if isinstance(branches, list) and branches:
                    few = cast("list[object]", branches)[:_MOST_BRANCHES]
                    return _union(self._type(branch, depth + 1, inline=inline) for branch in few)
            kind = "object" if "properties" in schema else "array" if "items" in schema else None
        if isinstance(kind, list):
            kinds = cast("list[object]", kind)[:_MOST_BRANCHES]
            return _union(self._of_kind(one, schema, depth, inline=inline) for one in kinds)
        return self._of_kind(kind, schema, depth, inline=inline)

    def _of_kind(self, kind: object, schema: Schema, depth: int, *, inline: bool) -> str:
        if kind == "array":
            inner = self._type(schema.get("items"), depth + 1, inline=inline)
            return f"list[{inner}]"
        if kind == "object":
            return self._object(schema, depth, inline=inline)
        return _SIMPLE.get(kind, ANY) if isinstance(kind, str) else ANY

    def _object(self, schema: Schema, depth: int, *, inline: bool) -> str:
        properties, required = properties_of(schema)
        if not properties:
            others: object = schema.get("additionalProperties")
            is_said = isinstance(others, Mapping)
            inner = self._type(cast("object", others), depth + 1, inline=inline) if is_said else ANY
            return f"dict[str, {inner}]"
        if not inline:
            return "dict[str, Any]"
        members: list[str] = []
        for name, inner in properties.items():
            if len(members) == _MOST_MEMBERS or self._left <= 0:
                members.append("…")
                break
            mark = "" if name in required else "?"
            members.append(f"{one_line(name, 60)}{mark}: {self._type(inner, depth + 1, inline=True)}")
        return f"{{{', '.join(members)}}}"


def _literal(values: list[object]) -> str:
    """`Literal[…]` of few short values that may stand there; else what type they have, or empty."""
    kinds = {type(value) for value in values[:200]}
    if kinds <= {str, int, bool, type(None)} and len(values) <= _MOST_VALUES and values:
        if any(isinstance(value, int) and abs(value) > 1 << 64 for value in values):
            return ""
        if all(len(value) <= _LONGEST_LITERAL for value in values if isinstance(value, str)):
            told = ", ".join(dict.fromkeys(map(repr, values)))
            if len(told) <= _LONGEST_LITERAL:
                return f"Literal[{told}]"
    return "str" if kinds == {str} else ""


def _union(types: Iterator[str]) -> str:
    """Each once, `None` last."""
    found = dict.fromkeys(one for told in types for one in _alternatives(told))
    if ANY in found or not found:
        return ANY
    is_optional = found.pop("None", "") is None
    return " | ".join([*found, *(["None"] if is_optional else [])])


def _alternatives(told: str) -> list[str]:
    """The types of a union; one with brackets stays whole."""
    return told.split(" | ") if "[" not in told and "{" not in told else [told]


def _has_none(told: str) -> bool:
    return told == "None" or told.endswith("| None")
