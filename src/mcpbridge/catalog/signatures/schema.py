"""Reads schemas for signatures: references, the parts a schema is put together of, members of objects, and values.

Schemas are any JSON, of any size and depth, and may lead back to themselves, so every step is counted. Only references
within the schema are followed (`#`, `#/$defs/Name`); nothing is fetched. A definition is written once. The types
themselves are worded in `types.py`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

_STEPS = 16
_LOOKED_AT = 20_000
"""Parts of a schema that are searched for references."""
_FOREIGN = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST = 40


class References:
    """Those of one schema."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._uses: Counter[str] | None = None
        self._names: dict[str, str] = {}
        self._used_names: set[str] = set()
        self._defined: set[int] = set()
        self._open: dict[int, str] = {}

    def target(self, ref: object) -> object:
        """What a reference points to; None if that is nothing."""
        if not isinstance(ref, str) or not ref.startswith("#") or len(ref) > 1000:
            return None
        at: object = self._root
        steps = ref[1:].split("/")
        if steps[0] or len(steps) > _STEPS:
            return None
        for step in steps[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(at, Mapping):
                at = cast("Mapping[str, object]", at).get(name)
            elif isinstance(at, list) and name.isascii() and name.isdigit() and len(name) < 6:
                items = cast("list[object]", at)
                at = items[int(name)] if int(name) < len(items) else None
            else:
                return None
        return at

    def name(self, ref: object, target: object) -> tuple[str, bool]:
        """The name of a definition, and whether it says enough: the definition was written, or is being written."""
        if not isinstance(ref, str):
            return "", False
        name = self._names.get(ref)
        if name is None:
            last = _FOREIGN.sub("_", unquote(ref.rsplit("/", 1)[-1][:200])).strip("_")[:_LONGEST] or "Self"
            name = last if last not in self._used_names else f"{last}{len(self._used_names) + 1}"
            self._used_names.add(name)
            self._names[ref] = name
        key = id(target)
        if key in self._open:
            name = self._open[key] = self._open[key] or name
        return name, key in self._defined or key in self._open

    def is_shared(self, ref: object) -> bool:
        """Whether a definition is used more than once."""
        if self._uses is None:
            self._uses = _uses(self._root)
        return isinstance(ref, str) and self._uses[ref] > 1

    def opened(self, schema: object) -> None:
        """From now on a part of the schema is being written."""
        self._open.setdefault(id(schema), "")

    def is_open(self, schema: object) -> bool:
        """Whether it is being written."""
        return id(schema) in self._open

    def closed(self, schema: object) -> str:
        """It is written now; returns the name that it was called by within itself, or nothing."""
        return self._open.pop(id(schema), "")

    def is_defined(self, target: object) -> bool:
        """Whether its name says enough."""
        return id(target) in self._defined

    def define(self, target: object) -> None:
        """From now on its name says enough."""
        self._defined.add(id(target))


def _uses(root: object) -> Counter[str]:
    found: Counter[str] = Counter()
    todo: list[Any] = [root]
    for _ in range(_LOOKED_AT):
        if not todo:
            break
        one = todo.pop()
        if isinstance(one, Mapping):
            members = cast("Mapping[str, object]", one)
            ref = members.get("$ref")
            if isinstance(ref, str):
                found[ref] += 1
            todo += [value for value in members.values() if isinstance(value, dict | list)]
        elif isinstance(one, list):
            todo += [value for value in cast("list[object]", one) if isinstance(value, dict | list)]
    return found


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


_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,99}", re.ASCII)
_MAX_PARTS = 24
"""Values in one literal."""
_BITS = 200
"""Of a number; Python refuses to write those of many thousand digits."""
_ANY_NUMBER = 2**53 - 1
"""Bounds that only say what a number in JSON is."""
_PATTERN = 80


def is_identifier(name: str) -> bool:
    """Whether a name needs no quotes."""
    return _IDENTIFIER.fullmatch(name) is not None


def literal(value: object, room: int) -> str:
    """A value as JSON, in at most `room` characters; empty if it does not fit."""
    if not _is_small(value, room):
        return ""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not text.isprintable():
        text = "".join([char if char.isprintable() else json.dumps(char)[1:-1] for char in text])
    return text if len(text) <= room else ""


def pattern(value: object) -> str:
    """A regular expression between slashes; empty if it is none, or long."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > _PATTERN:
        return ""
    return f"/{value}/"


def as_range(schema: Mapping[str, Any], least: str, most: str) -> tuple[str, bool]:
    """What two bounds allow, `1..50` or `>=1`, empty for anything; and whether that is all that they say."""
    exclusive = {key: schema.get(f"exclusive{key[0].upper()}{key[1:]}") for key in (least, most)}
    low, high = _bound(schema.get(least)), _bound(schema.get(most))
    parts: list[str] = []
    if low and high and not any(exclusive.values()):
        return f"{low}..{high}", True
    for key, sign, bound in ((least, ">", low), (most, "<", high)):
        beyond = exclusive[key]
        if beyond is True:  # as the first drafts said it
            parts += [f"{sign}{bound}"] if bound else []
        else:
            parts += [f"{sign}={bound}"] if bound else []
            parts += [f"{sign}{other}"] if (other := _bound(beyond)) else []
    values = (schema.get(least), schema.get(most), *exclusive.values())
    is_whole = all(value is None or isinstance(value, bool) or _is_number(value) for value in values)
    return " ".join(parts), is_whole


def _bound(value: object) -> str:
    if not _is_number(value) or abs(cast("float", value)) >= _ANY_NUMBER:
        return ""
    return literal(value, 24)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_small(value: object, room: int) -> bool:
    """Whether it can be written at all: neither deep nor long."""
    todo: list[tuple[object, int]] = [(value, 0)]
    for _ in range(_MAX_PARTS):
        if not todo:
            return True
        one, depth = todo.pop()
        if isinstance(one, str):
            if len(one) > room:
                return False
        elif isinstance(one, dict | list):
            several = cast("dict[str, object] | list[object]", one)
            if depth > 3 or len(several) > _MAX_PARTS:
                return False
            todo += [(part, depth + 1) for part in (several.items() if isinstance(several, dict) else several)]
        elif isinstance(one, tuple):
            todo += [(part, depth) for part in cast("tuple[object, ...]", one)]
        elif not _is_scalar(one):
            return False
    return not todo


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= _BITS)
