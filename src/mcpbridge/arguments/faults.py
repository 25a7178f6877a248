"""What is wrong with arguments, said so that a model gets them right next time. Pure.

Each fault is one short sentence, with the nearest valid name or value; the piece of the schema that shows how it is
right stands beside them (`arguments/piece.py`). Values are shown only if they are small.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, cast

from msgspec import Struct

from mcpbridge.arguments.check import Fault, Path, Schema
from mcpbridge.arguments.piece import schema_piece
from mcpbridge.arguments.places import declared, governing, has_patterns
from mcpbridge.arguments.showing import listed, shown, spelled
from mcpbridge.errors import ArgumentsRefused, nearest
from mcpbridge.wire.frame import encode

__all__ = ["FAULTS", "SCHEMA", "refusal"]

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


class _Said(Struct, frozen=True):
    """One fault in words, and which parameters (by their path) it is about."""

    path: Path
    keyword: str
    message: str
    about: tuple[Path, ...]


def refusal(name: str, schema: Schema, faults: list[Fault], value: Any) -> ArgumentsRefused:
    """The error for a call of the tool `name` with these faults, of which there is at least one."""
    told_better = {fault.path for fault in faults if fault.keyword in ("enum", "const")}
    told = [fault for fault in faults if fault.keyword != "type" or fault.path not in told_better]
    said = list(islice(_distinct(one for fault in told for one in _said(schema, fault, value)), MAX_FACTS))
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


def _distinct(said: Iterable[_Said]) -> Iterator[_Said]:
    seen = set[str]()
    for one in said:
        if one.message not in seen:
            seen.add(one.message)
            yield one


def _near(name: str, known: list[str], limit: int = 3) -> list[str]:
    """The nearest names, where looking for them takes no time to speak of."""
    return nearest(name, known[:_MAX_COMPARED], limit=limit) if len(name) <= _LONGEST else []


def _said(root: Schema, fault: Fault, value: Any) -> Iterator[_Said]:
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
        yield _Said(fault.path, fault.keyword, message, (fault.path,))


def _missing(root: Schema, fault: Fault, found: Any) -> _Said:
    name = str(fault.facts["property"])
    names = declared(root, governing(root, fault.place))
    strangers = [other for other in cast("dict[str, Any]", found) if other not in names]
    path = (*fault.path, name)
    message = f"`{spelled(path)}` is missing"
    if meant := _near(name, strangers, 1):
        message += f"; is it meant by `{spelled((meant[0],))}`?"
    return _Said(path, fault.keyword, message, (path,))


def _unexpected(root: Schema, fault: Fault, name: str, found: Any) -> _Said:
    place = governing(root, fault.place)
    names = [other for other in declared(root, place) if other not in found]
    path = (*fault.path, name)
    message = f"`{spelled(path)}` is unknown"
    meant = _near(name, names)
    if meant:
        message += f"; did you mean {' or '.join(f'`{spelled((one,))}`' for one in meant)}?"
    elif names and not has_patterns(root, place):
        message += f"; known, and not given: {listed(f'`{spelled((one,))}`' for one in names)}"
    about = tuple((*fault.path, one) for one in meant or names[:_MAX_OTHERS]) or (path,)
    return _Said(path, fault.keyword, message, about)


def _of_branches(root: Schema, fault: Fault, value: Any, found: Any) -> Iterator[_Said]:
    """The alternatives: which types there are, or what keeps the value from the only one that it can be."""
    here = [
        {kind for one in branch if one.keyword == "type" and one.path == fault.path for kind in one.facts["types"]}
        for branch in fault.branches
    ]
    open_branches = [branch for branch, types in zip(fault.branches, here, strict=True) if not types]
    meant = [branch for branch in open_branches if all(one.keyword != "const" for one in branch)]
    if len(meant) == 1:
        for one in meant[0]:
            yield from _said(root, one, value)
        return
    place = f"`{spelled(fault.path)}`" if fault.path else "the object of arguments"
    if not open_branches:
        message = f"{place} {_demand('type', {'types': sorted(set[str]().union(*here))}, found, fault.path)}"
    else:
        firsts = [next(iter(_said(root, branch[0], value))).message for branch in open_branches[:3] if branch]
        message = f"{place} fits none of its {fault.facts['count']} alternatives ({'; or '.join(firsts)})"
    yield _Said(fault.path, fault.keyword, message, (fault.path,))


def _demand(keyword: str, facts: Schema, found: Any, path: Path) -> str:
    """What a keyword wants of a value, and what it is instead."""
    instead = f", not {shown(found, path)}"
    match keyword:
        case "type":
            return f"must be {_types(facts['types'])}{instead}"
        case "enum":
            options: list[Any] = facts["options"]
            words = [one for one in options if isinstance(one, str)]
            meant = _near(found, words, 1) if isinstance(found, str) else []
            asked = f"; did you mean {shown(meant[0])}?" if meant else ""
            return f"must be one of {listed(map(shown, options))}{instead}{asked}"
        case "const":
            return f"must be {shown(facts['expected_value'])}{instead}"
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            how = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "more than"}.get(
                keyword, "less than"
            )
            return f"must be {how} {shown(facts['limit'])}{instead}"
        case "multipleOf":
            return f"must be a multiple of {shown(facts.get('multiple_of'))}{instead}"
        case "pattern":
            pattern = str(facts.get("pattern", ""))
            return f"must match the pattern {pattern[:_LONGEST]}{'…' if len(pattern) > _LONGEST else ''}{instead}"
        case _ if keyword in _COUNTED and "limit" in facts:
            how, what = _COUNTED[keyword]
            have = len(found) if isinstance(found, str | list | dict) else 0  # pyright: ignore[reportUnknownArgumentType]
            return f"must have {how} {facts['limit']} {what}, not {have}"
        case "uniqueItems":
            return "must not hold the same item twice"
        case "falseSchema":
            return "must be left out"
        case "anyOf" | "oneOf":
            return "fits none of its alternatives" if facts.get("count") else "fits more than one of its alternatives"
        case "schema":
            return "does not fit; it is too large to tell where"
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
