"""What is wrong with arguments, worded so that a model gets them right next time. Pure.

Each fault is one short sentence, with the nearest valid name or value. Beside them is the piece of the schema that
shows how it is right: only those parameters and what is required, with `$ref`s put in place, and small enough for a
model's context. Detail goes step by step until it fits: descriptions first, types last. Values are shown only if they
are small.

`width_of` bounds how many errors one wrong value can be: of `anyOf` and `oneOf` every alternative has some of its own,
and the validator makes them all before it reports the first, 20 µs each.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, cast

from msgspec import Struct

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.base.suggestions import nearest
from mcpbridge.pipeline.validation.schema_check import Fault, Path, Schema, Width
from mcpbridge.pipeline.validation.schema_paths import (
    declared,
    follow,
    governing,
    has_patterns,
    is_schema,
    listed,
    printed,
    spelled,
)
from mcpbridge.protocol.jsonrpc import encode

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


FAULTS, SCHEMA = "mcpbridge/faults", "mcpbridge/schema"
"""In `_meta` of a refused call: what is wrong, each as `path`, `keyword` and `message`, and what would be right."""

MAX_SAID, MAX_FACTS = 5, 20
"""Faults in the text, and in `_meta`; further ones are counted."""
_LONGEST = 120
"""Characters of a name or a pattern that a message repeats."""
_MAX_COMPARED = 200
"""Names that one is compared with."""
_MAX_OTHERS = 4
"""Parameters that may have been meant by a name that is near none of them."""


class _Explanation(Struct, frozen=True):
    """One fault in words, and which parameters (by their path) it is about."""

    path: Path
    keyword: str
    message: str
    about: tuple[Path, ...]


def refusal(name: str, schema: Schema, faults: list[Fault], value: Any) -> ArgumentsRefused:
    """The error for a call of the tool `name` with these faults, of which there is at least one."""
    told_better = {fault.path for fault in faults if fault.keyword in ("enum", "const")}
    told = [fault for fault in faults if fault.keyword != "type" or fault.path not in told_better]
    said = list(islice(_distinct(one for fault in told for one in _explanations(schema, fault, value)), MAX_FACTS))
    count = len(said) if len(said) < MAX_FACTS else sum(len(fault.facts.get("unexpected", "1")) for fault in told)
    piece = schema_piece(schema, [path for one in said for path in one.about])
    lines = [
        f"{name} was not called: its arguments do not fit its schema.",
        *(f"- {one.message}" for one in said[:MAX_SAID]),
    ]
    if count > MAX_SAID:
        lines.append(f"- and {count - MAX_SAID} more")
    lines.append(f"What fits, in part: {encode(piece).decode()}")
    error = ArgumentsRefused("\n".join(lines))
    facts = [{"path": spelled(one.path), "keyword": one.keyword, "message": one.message} for one in said]
    error.facts = {FAULTS: facts, SCHEMA: piece}
    return error


def _distinct(explanations: Iterable[_Explanation]) -> Iterator[_Explanation]:
    seen = set[str]()
    for one in explanations:
        if one.message not in seen:
            seen.add(one.message)
            yield one


def _near(name: str, known: list[str], limit: int = 3) -> list[str]:
    """The nearest names, where looking for them takes no time to speak of."""
    return nearest(name, known[:_MAX_COMPARED], limit=limit) if len(name) <= _LONGEST else []


def _explanations(root: Schema, fault: Fault, value: Any) -> Iterator[_Explanation]:
    found = value
    for key in fault.path:
        found = found[key]
    if fault.branches:
        yield from _of_branches(root, fault, value, found)
    elif "property" in fault.facts:
        yield _missing(root, fault, found)
    elif "unexpected" in fault.facts:
        for name in fault.facts["unexpected"]:
            yield _unexpected(root, fault, str(name), found)
    else:
        place = f"`{spelled(fault.path)}`" if fault.path else "the object of arguments"
        message = f"{place} {_demand(fault.keyword, fault.facts, found, fault.path)}"
        yield _Explanation(fault.path, fault.keyword, message, (fault.path,))


def _missing(root: Schema, fault: Fault, instance: Any) -> _Explanation:
    name = str(fault.facts["property"])
    names = declared(root, governing(root, fault.place))
    strangers = [other for other in cast("dict[str, Any]", instance) if other not in names]
    path = (*fault.path, name)
    message = f"`{spelled(path)}` is missing"
    if meant := _near(name, strangers, 1):
        message += f"; is it meant by `{spelled((meant[0],))}`?"
    return _Explanation(path, fault.keyword, message, (path,))


def _unexpected(root: Schema, fault: Fault, name: str, instance: Any) -> _Explanation:
    place = governing(root, fault.place)
    names = [other for other in declared(root, place) if other not in instance]
    path = (*fault.path, name)
    message = f"`{spelled(path)}` is unknown"
    meant = _near(name, names)
    if meant:
        message += f"; did you mean {' or '.join(f'`{spelled((one,))}`' for one in meant)}?"
    elif names and not has_patterns(root, place):
        message += f"; known, and not given: {listed(f'`{spelled((one,))}`' for one in names)}"
    about = tuple((*fault.path, one) for one in meant or names[:_MAX_OTHERS]) or (path,)
    return _Explanation(path, fault.keyword, message, about)


def _of_branches(root: Schema, fault: Fault, value: Any, instance: Any) -> Iterator[_Explanation]:
    """The alternatives: which types there are, or what keeps the value from the only one that it can be."""
    here = [
        {kind for one in branch if one.keyword == "type" and one.path == fault.path for kind in one.facts["types"]}
        for branch in fault.branches
    ]
    open_branches = [branch for branch, types in zip(fault.branches, here, strict=True) if not types]
    meant = [branch for branch in open_branches if all(one.keyword != "const" for one in branch)]
    if len(meant) == 1:
        for one in meant[0]:
            yield from _explanations(root, one, value)
        return
    place = f"`{spelled(fault.path)}`" if fault.path else "the object of arguments"
    if not open_branches:
        message = f"{place} {_demand('type', {'types': sorted(set[str]().union(*here))}, instance, fault.path)}"
    else:
        firsts = [next(iter(_explanations(root, branch[0], value))).message for branch in open_branches[:3] if branch]
        message = f"{place} fits none of its {fault.facts['count']} alternatives ({'; or '.join(firsts)})"
    yield _Explanation(fault.path, fault.keyword, message, (fault.path,))


def _demand(keyword: str, facts: Schema, instance: Any, path: Path) -> str:
    """What a keyword wants of a value, and what it is instead."""
    instead = f", not {printed(instance, path)}"
    match keyword:
        case "type":
            return f"must be {_types(facts['types'])}{instead}"
        case "enum":
            options: list[Any] = facts["options"]
            words = [one for one in options if isinstance(one, str)]
            meant = _near(instance, words, 1) if isinstance(instance, str) else []
            asked = f"; did you mean {printed(meant[0])}?" if meant else ""
            return f"must be one of {listed(map(printed, options))}{instead}{asked}"
        case "const":
            return f"must be {printed(facts['expected_value'])}{instead}"
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            how = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "more than"}.get(
                keyword, "less than"
            )
            return f"must be {how} {printed(facts['limit'])}{instead}"
        case "multipleOf":
            return f"must be a multiple of {printed(facts.get('multiple_of'))}{instead}"
        case "pattern":
            pattern = str(facts.get("pattern", ""))
            return f"must match the pattern {pattern[:_LONGEST]}{'…' if len(pattern) > _LONGEST else ''}{instead}"
        case _ if keyword in _COUNTED and "limit" in facts:
            how, what = _COUNTED[keyword]
            have = len(instance) if isinstance(instance, str | list | dict) else 0  # pyright: ignore[reportUnknownArgumentType] - of any JSON
            return f"must have {how} {facts['limit']} {what}, not {have}"
        case "uniqueItems":
            return "must not hold the same item twice"
        case "falseSchema":
            return "must be left out"
        case "anyOf" | "oneOf":
            return "fits none of its alternatives" if facts.get("count") else "fits more than one of its alternatives"
        case "schema":
            return "does not match the schema; it is too large to say where"
        case "propertyNames":
            return "has a name in it that is not allowed"
        case _:
            return f"does not fit: `{keyword}`"


_COUNTED = {
    "minLength": ("at least", "characters"),
    "maxLength": ("at most", "characters"),
    "minItems": ("at least", "items"),
    "maxItems": ("at most", "items"),
    "minProperties": ("at least", "members"),
    "maxProperties": ("at most", "members"),
}


def _types(types: list[str]) -> str:
    names = [{"integer": "an integer", "array": "an array", "object": "an object", "null": "null"}.get(one, f"a {one}")
             for one in types]  # fmt: skip
    return " or ".join(sorted(names, key=lambda one: one == "null"))


_ALTERNATIVES = frozenset({"anyOf", "oneOf"})
_IN_PLACE = frozenset({"allOf", "if", "then", "else", "not", "dependentSchemas", *_ALTERNATIVES})
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
_OF_MEMBERS = frozenset(
    (
        *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
        *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"),
    )
)


def width_of(root: Schema) -> Width:
    """What the check of a value costs at most, by its size.

    Raises RecursionError: the schema is nested too deeply.
    """
    found = _Widths(root).of(root)
    return Width(found.errors, found.within)


class _Found(Struct, frozen=True):
    errors: int = 1
    within: int = 0
    has_members: bool = False
    """It says something of members or items of its value."""


class _Widths:
    """Looks at each part once; one that leads back to itself counts once."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: dict[int, _Found] = {}

    def of(self, part: object) -> _Found:
        """Of one schema."""
        if not is_schema(part):
            return _Found()
        known = self._known.get(id(part))
        if known is not None:
            return known
        self._known[id(part)] = _Found(has_members=True)  # while it is looked at: here it leads back to itself
        here, within, has_members = 0, 0, False
        of_members = [self.of(one) for keyword in _OF_MEMBERS & part.keys() for one in _schemas(keyword, part)]
        for keyword in _IN_PLACE & part.keys():
            several = [self.of(one) for one in _schemas(keyword, part)]
            errors = sum(one.errors for one in several)
            here += errors
            has_members = has_members or any(one.has_members for one in several)
            within = max([within, *(one.within for one in several)])
            if keyword in _ALTERNATIVES and any(one.has_members for one in several):
                within = max(within, errors)
        if "$ref" in part:
            referred = self.of(follow(self._root, part["$ref"]))
            here, within = here + referred.errors, max(within, referred.within)
            has_members = has_members or referred.has_members
        found = _Found(
            max([1, here, *(one.errors for one in of_members)]),
            max([within, *(one.within for one in of_members)]),
            has_members or bool(of_members),
        )
        self._known[id(part)] = found
        return found


def _schemas(keyword: str, part: Schema) -> Iterator[object]:
    value: object = part[keyword]
    if isinstance(value, list):
        yield from cast("list[object]", value)
    elif keyword in _BY_NAME and is_schema(value):
        yield from value.values()
    else:
        yield value
