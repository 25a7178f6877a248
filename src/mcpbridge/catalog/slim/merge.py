"""Steps of making a schema smaller: merge two schemas, inline definitions (`$defs`). Pure.

Also the tables of JSON Schema's keywords that these steps need, and where a schema is in another one, which decides
which of its words repeat others. Schemas are given by their keywords, values unparsed.
"""

from collections import Counter
from collections.abc import Mapping
from urllib.parse import unquote

import msgspec
from msgspec import Raw, Struct

from mcpbridge.base.late_pattern import late
from mcpbridge.protocol.jsonrpc import Fields, decode_array, decode_fields, encode_fields

ANNOTATIONS = frozenset(
    {"title", "description", "default", "deprecated", "readOnly", "writeOnly", "examples", "example", "$comment"}
)
"""Keywords that say something and check nothing."""

UNIONS = ("anyOf", "oneOf", "allOf")
"""Keywords of several schemas that mean the same as the schema alone where there is one."""

NOTHING_SAID: Mapping[str, frozenset[bytes]] = {
    "required": frozenset({b"[]"}),
    "examples": frozenset({b"[]"}),
    "patternProperties": frozenset({b"{}"}),
    "dependentSchemas": frozenset({b"{}"}),
    "dependentRequired": frozenset({b"{}"}),
    "dependencies": frozenset({b"{}"}),
    "propertyNames": frozenset({b"{}", b"true", b'{"type":"string"}'}),
    "description": frozenset({b'""', b"null"}),
    "title": frozenset({b'""', b"null"}),
    "uniqueItems": frozenset({b"false"}),
    "minLength": frozenset({b"0"}),
    "minItems": frozenset({b"0"}),
    "minProperties": frozenset({b"0"}),
}
"""Keywords and the values with which they say nothing. `properties` and `items` are not among them: some providers
refuse an object or array without."""

SUFFIXES = (
    "schema", "arguments", "args", "parameters", "params", "input", "request", "model", "output", "result", "response"
)  # fmt: skip
"""What generators add to the name of a tool to get a title for its schemas."""


def starts(raw: Raw, sign: bytes) -> bool:
    """Whether the JSON begins with this character; cheap."""
    return bytes(memoryview(raw)[:1]) == sign


def merged(fields: Fields, keyword: str, body: Fields, *, outer_wins: bool) -> Fields | None:
    """The schema with `body` in place of its `keyword`; None where that would mean something else, or lose words.

    `outer_wins`: of two descriptions or titles the inner one may be lost.
    """
    for name, value in fields.items():
        if name == keyword:
            continue
        if name not in ANNOTATIONS:
            return None
        other = body.get(name)
        if other is not None and bytes(other) != bytes(value) and not (outer_wins and name in ("description", "title")):
            return None
    one: Fields = {}
    for name, value in fields.items():
        if name == keyword:
            one.update({inner: said for inner, said in body.items() if inner == keyword or inner not in fields})
        else:
            one[name] = value
    return one


def only_arm(fields: Fields) -> tuple[str, Fields] | None:
    """The union of a single schema that is the whole of this one, and that schema; None if there is none."""
    for keyword in UNIONS:
        value = fields.get(keyword)
        if value is not None and starts(value, b"["):
            arms = decode_array(value)
            if len(arms) == 1 and starts(arms[0], b"{"):
                return keyword, decode_fields(arms[0])
    return None


DEFINITIONS = ("$defs", "definitions")

Target = tuple[str, str]
"""A definition: (`$defs` or `definitions`, the name there)."""

_REFERENCE = late(rb'"\$ref"\s*:\s*("(?:[^"\\]|\\.)*")')
_REFERS = late(rb'"\$(?:ref|dynamicRef|recursiveRef)"')
_OTHER_WAYS = late(
    rb'"\$(?:id|anchor|dynamicRef|dynamicAnchor|recursiveRef|recursiveAnchor)"\s*:|"id"\s*:\s*"[^"]*[:#]'
)
"""What makes a reference mean something else than a path from the top."""
_ESCAPED = late(rb"\\u00(?:24|[46][1-9A-Fa-f]|[57][0-9Aa])")
"""A letter or `$` that is escaped for no reason: a keyword may be hidden so."""


class References(Struct, frozen=True):
    """What may be done with the definitions of one schema."""

    definitions: Mapping[Target, Raw]
    """All of them. Those that nothing refers to are left out."""
    inlined: frozenset[Target]
    """Those that take less room where they are used."""
    is_fixed: bool
    """References may point to any place: nothing may move, and nothing but words may go."""
    are_kept: bool
    """Nobody knows which definitions are used, so all stay."""
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
    if not _REFERS.search(raw) and not _ESCAPED.search(raw):
        return References(known, frozenset(), is_fixed=False, are_kept=False) if known else _NONE
    found = [_read(literal) for literal in _REFERENCE.findall(raw)]
    is_plain = all(reference.startswith("#") for reference in found)
    if not is_plain or _OTHER_WAYS.search(raw) or _ESCAPED.search(raw):
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
    waiting = [Raw(encode_fields(top))]
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


class Place(Struct, frozen=True):
    """Where a schema is."""

    name: str = ""
    """Of the property, or the definition, whose schema it is; empty at the top and where it has none."""
    outer_text: str = ""
    """The description of the schema around it, or of the tool, that describes the same."""
    depth: int = 0
    is_required: bool = False
    is_optional_argument: bool = False
    """It is an argument that may be left out."""

    def inner(self, outer_text: str = "") -> "Place":
        """A place within this one, for what describes the same value or its parts."""
        return Place("", outer_text, self.depth + 1, is_required=self.is_required)

    def property(self, name: str, *, is_required: bool, is_argument: bool) -> "Place":
        """That of a property of this object."""
        return Place(name, "", self.depth + 1, is_required, is_argument and not is_required)
