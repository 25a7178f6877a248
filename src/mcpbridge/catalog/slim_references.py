"""The definitions in a schema (`$defs`): which are referred to, and which may stand where they are."""

import re
from collections import Counter
from collections.abc import Mapping
from urllib.parse import unquote

import msgspec
from msgspec import Raw, Struct

from mcpbridge.wire.frame import Fields, decode_fields

__all__ = ["DEFINITIONS", "References", "Target", "named_in", "references", "target"]

DEFINITIONS = ("$defs", "definitions")

Target = tuple[str, str]
"""A definition: (`$defs` or `definitions`, the name there)."""

_REFERENCE = re.compile(rb'"\$ref"\s*:\s*("(?:[^"\\]|\\.)*")')
_OTHER_WAYS = re.compile(
    rb'"\$(?:id|anchor|dynamicRef|dynamicAnchor|recursiveRef|recursiveAnchor)"\s*:|"id"\s*:\s*"[^"]*[:#]'
)
"""What makes a reference mean something else than a path from the top."""


class References(Struct, frozen=True):
    """What may be done with the definitions of one schema."""

    definitions: Mapping[Target, Raw]
    """All of them. Those that nothing refers to are left out."""
    inlined: frozenset[Target]
    """Those that take less room where they are used."""
    is_fixed: bool
    """References may point to any place, or to places that cannot be told: nothing may move."""
    are_kept: bool
    """Which definitions are used cannot be told, so all stay."""
    is_none: bool = False
    """There is neither a definition nor a reference."""


_NONE = References({}, frozenset(), is_fixed=False, are_kept=False, is_none=True)


def references(raw: bytes, fields: Fields) -> References:
    """What may be done with the definitions of a schema; `fields` is its top level.

    Raises:
        msgspec.DecodeError: they are no objects.
    """
    known = {
        (keyword, name): body
        for keyword in DEFINITIONS
        if keyword in fields
        for name, body in decode_fields(fields[keyword]).items()
    }
    found = [_read(literal) for literal in _REFERENCE.findall(raw)]
    if not found and not known:
        return _NONE
    if _OTHER_WAYS.search(raw) or not all(reference.startswith("#") for reference in found):
        return References(known, frozenset(), is_fixed=True, are_kept=True)
    targets = {reference: target(reference) for reference in set(found)}
    if any(aim is None and reference != "#" for reference, aim in targets.items()):
        reaches_in = any(aim is None and ("definitions" in ref or "defs" in ref) for ref, aim in targets.items())
        return References(known, frozenset(), is_fixed=True, are_kept=reaches_in)
    top = {name: value for name, value in fields.items() if name not in DEFINITIONS}
    return References(known, _worth_inlining(known, top), is_fixed=False, are_kept=False)


def target(reference: str) -> Target | None:
    """The definition that a reference means; None: something else."""
    for keyword in DEFINITIONS:
        if reference.startswith(f"#/{keyword}/"):
            name = reference[len(keyword) + 3 :]
            if "/" not in name:
                return keyword, unquote(name).replace("~1", "/").replace("~0", "~")
    return None


def named_in(raw: bytes) -> list[Target]:
    """The definitions that references in this JSON mean, as often as they do."""
    return [aim for literal in _REFERENCE.findall(raw) if (aim := target(_read(literal)))]


def _worth_inlining(known: Mapping[Target, Raw], top: Fields) -> frozenset[Target]:
    """Those used once, and small ones that refer to nothing: no circles, since whoever enters one uses a part twice."""
    uses = Counter[Target]()
    waiting: list[Raw] = list(top.values())
    while waiting:
        for aim in named_in(bytes(waiting.pop())):
            if aim not in uses and aim in known:
                waiting.append(known[aim])
            uses[aim] += 1
    return frozenset(
        aim for aim, count in uses.items() if aim in known and (count == 1 or _is_short(aim, bytes(known[aim]), count))
    )


def _is_short(aim: Target, body: bytes, count: int) -> bool:
    name = len(aim[1].encode(errors="replace"))
    reference = len('{"$ref":"#//"}') + len(aim[0]) + name
    return count * len(body) <= count * reference + name + 4 + len(body) and b'"$ref"' not in body


def _read(literal: bytes) -> str:
    return msgspec.json.decode(literal, type=str)
