"""A smaller JSON Schema: what tells a model nothing is taken out, or more, as `SchemaRules` say; pure.

Nothing is written in another form than the server chose, since clients understand different ones. What was valid stays
so: constraints are taken out, not added. Where that could turn round (below `not`, `if`, `oneOf`) only what changes
nothing is done. One exception, of arguments alone: where null is the default of a property that may be left out, the
schema no longer says that null may be written out.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from mcpbridge.catalog.slim_keywords import DIALECT, OLD_DIALECT, SENSITIVE_TO_DIALECT, SchemaRules
from mcpbridge.catalog.slim_place import Place
from mcpbridge.catalog.slim_references import DEFINITIONS, References, Target, references
from mcpbridge.catalog.slim_walk import Walk
from mcpbridge.catalog.slim_words import Wording
from mcpbridge.wire.frame import Fields, decode_fields, encode_fields

__all__ = ["shorter_schema"]

_ROUNDS = 16
"""Passes at most: what was moved into one place may then be moved on."""


def shorter_schema(raw: bytes, rules: SchemaRules, *, tool: str, told: str, is_input: bool) -> bytes:
    """The schema after `rules`; the same object where that is not shorter. Never raises.

    `tool`: the name of the tool; `told`: its description. `is_input`: what it describes are arguments.
    """
    try:
        for _ in range(_ROUNDS):
            found, is_final = _once(raw, rules, tool, told, is_input)
            if len(found) >= len(raw):
                break
            raw = found
            if is_final:
                break
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass  # of what is malformed in a part that matters, nothing is known
    return raw


def _once(raw: bytes, rules: SchemaRules, tool: str, told: str, is_input: bool) -> tuple[bytes, bool]:
    """One pass, and whether another one would find nothing."""
    fields = decode_fields(raw)
    known = references(raw, fields)
    words = Wording(rules, tool)
    walk = Walk(raw, known, words, rules.dropped, is_input=is_input)
    found = _walked(walk, known, raw, fields, told)
    silenced = _beyond(words.texts, rules.all_texts)
    if silenced:
        walk = Walk(raw, known, Wording(rules, tool, silenced), rules.dropped, is_input=is_input)
        found = _walked(walk, known, raw, fields, told)
    return encode_fields(found), walk.is_final


def _beyond(texts: Sequence[tuple[int, bool, int]], room: int | None) -> frozenset[int]:
    """The descriptions for which there is no room, by their numbers: the deepest, and of these the optional ones."""
    if room is None or sum(length for _, _, length in texts) <= room:
        return frozenset()
    silenced: set[int] = set()
    for number in sorted(range(len(texts)), key=lambda number: (*texts[number][:2], number)):
        room -= texts[number][2]
        if room < 0:
            room += texts[number][2]
            silenced.add(number)
    return frozenset(silenced)


def _walked(walk: Walk, known: References, raw: bytes, fields: Fields, told: str) -> Fields:
    top = {name: value for name, value in fields.items() if name not in DEFINITIONS}
    dialect = top.get("$schema")
    named = bytes(dialect) if dialect is not None else b""
    is_needless = DIALECT.fullmatch(named) and (b"2020-12" in named or not SENSITIVE_TO_DIALECT.search(raw))
    if is_needless:
        del top["$schema"]
    if known.is_none:
        top.pop("$id", None)
    found = walk.schema(top, Place(told=told, is_exact=walk.evaluates))
    definitions = _definitions(walk, known, raw)
    if dialect is not None and is_needless and walk.has_company and OLD_DIALECT.match(named):
        found = {"$schema": dialect, **found}
    return {**found, **definitions}


def _definitions(walk: Walk, known: References, raw: bytes) -> Fields:
    """The definitions that are used, in the groups that they stood in."""
    if not known.definitions:
        return {}
    turns = any(word in raw for word in (b'"oneOf"', b'"not"', b'"if"', b'"contains"'))
    if known.are_kept:
        walk.needed.update(dict.fromkeys(known.definitions))
    done: dict[Target, Raw] = {}
    while waiting := [aim for aim in walk.needed if aim in known.definitions and aim not in done]:
        for aim in waiting:
            place = Place(aim[1], depth=1, is_exact=turns or walk.evaluates)
            done[aim] = walk.one(known.definitions[aim], place)
    groups: Fields = {}
    for group in DEFINITIONS:
        of_group = {aim[1]: done[aim] for aim in known.definitions if aim[0] == group and aim in done}
        if of_group:
            groups[group] = Raw(encode_fields(of_group))
    return groups
