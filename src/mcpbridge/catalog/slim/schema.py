"""Makes a JSON Schema smaller: it takes out words that mean nothing to a model, or more, as `SchemaRules` say. Pure.

The smaller schema accepts and refuses the same values, at every level: what goes are annotations, keywords that check
nothing as they are (`minLength: 0`), and definitions that nothing refers to. `$schema` stays: it says how to read the
rest.

One pass looks at keywords only where a schema is. Names of properties are names, whatever they are; data (`enum`,
`const`, `default`) and unknown keywords pass as the bytes that came. Nothing is written in another form than the server
chose, since clients understand different ones.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Raw

from mcpbridge.catalog.definitions.schemas import HEADER_MARK
from mcpbridge.catalog.slim.levels import DEEPEST_SCHEMA, SchemaRules
from mcpbridge.catalog.slim.merge import (
    DEFINITIONS,
    NOTHING_SAID,
    UNIONS,
    Place,
    References,
    Target,
    merged,
    named_in,
    only_arm,
    references,
    starts,
    target,
)
from mcpbridge.catalog.slim.text import Wording, description_of, names_of, plain, text_of
from mcpbridge.protocol.jsonrpc import Fields, decode_array, decode_fields, encode_fields

_WORDS = frozenset({"title", "description"})
_INNER = (
    "not", "if", "then", "else", "contains", "propertyNames", "contentSchema", "unevaluatedProperties",
)  # fmt: skip
"""Keywords of one schema, of which nothing is known but where it is."""
_Handler = Callable[[str, Raw, Place, Fields], Raw | None]
"""(keyword, its value, where the schema is, all its keywords) -> what stays of the value; None: nothing."""


class Walk:
    """What is known during one pass. Methods raise msgspec.DecodeError where a part is malformed."""

    def __init__(self, raw: bytes, known: References, words: Wording, rules: SchemaRules, *, is_input: bool) -> None:
        """`raw`: the whole schema. `is_input`: it describes arguments."""
        self.needed: dict[Target, None] = {}
        """Definitions that what was looked at so far refers to."""
        self.is_final = known.is_none or not rules.is_inlined
        """Another pass would find nothing."""
        self._known, self._words, self._rules, self._is_input = known, words, rules, is_input
        has_marks = HEADER_MARK.encode() in raw  # clients find these by their path
        self._can_move = rules.is_inlined and not known.is_fixed and not has_marks
        self._counts_rest = b'"unevaluated' in raw
        """Something says what becomes of all that other keywords left open, so `additionalProperties: true` counts."""
        self._handlers = self._handling()

    def one(self, raw: Raw, place: Place) -> Raw:
        """A schema as JSON; what is none stays."""
        if not starts(raw, b"{") or place.depth > DEEPEST_SCHEMA:
            return self._as_sent(raw)
        return Raw(encode_fields(self.schema(decode_fields(raw), place)))

    def schema(self, fields: Fields, place: Place) -> Fields:
        """A schema by its keywords."""
        if self._can_move:
            fields = self._gathered(fields)
        shorter: Fields = {}
        for keyword, value in fields.items():
            handler = self._handlers.get(keyword, self._other)
            left = handler(keyword, value, place, fields)
            if left is not None and not _says_nothing(keyword, left):
                shorter[keyword] = left
            elif self._known.is_fixed and keyword not in _WORDS:
                shorter[keyword] = value  # something may refer to it
        return shorter

    def _as_sent(self, raw: Raw) -> Raw:
        """What stays as it came needs the definitions that it refers to."""
        if self._known.definitions:
            self.needed.update(dict.fromkeys(named_in(bytes(raw))))
        return raw

    # -- what stands elsewhere, or in a union of its own, put in its place

    def _gathered(self, fields: Fields) -> Fields:
        while True:
            before = fields
            if arm := only_arm(fields):
                fields = self._merged(fields, *arm)
            if "$ref" in fields:
                fields = self._resolved(fields)
            if fields is before:
                return fields

    def _resolved(self, fields: Fields) -> Fields:
        aim = _aim(fields["$ref"])
        body = self._known.definitions.get(aim) if aim in self._known.inlined else None
        if aim is None or body is None or not starts(body, b"{"):
            return fields
        inner = decode_fields(body)
        if plain(text_of(inner.get("title")) or "") == plain(aim[1]):
            inner.pop("title", None)
        return self._merged(fields, "$ref", inner)

    def _merged(self, fields: Fields, keyword: str, body: Fields) -> Fields:
        one = merged(fields, keyword, body, outer_wins=self._words.is_short)
        if one is None:
            self.is_final = False  # when one of both got shorter, it may go
            return fields
        return one

    # -- keywords

    def _handling(self) -> Mapping[str, _Handler]:
        """What is done about each keyword. Of those that are not here, the value stays as it came."""
        return {
            "$ref": self._reference,
            "properties": self._properties,
            **dict.fromkeys(("patternProperties", "dependentSchemas", "$defs", "definitions"), self._by_name),
            **dict.fromkeys(("items", "prefixItems", "additionalItems", "unevaluatedItems"), self._items),
            **dict.fromkeys(UNIONS, self._arms),
            **dict.fromkeys(_INNER, self._inner),
            "additionalProperties": self._additional,
            "description": lambda keyword, value, place, fields: self._words.description(value, place),
            "title": lambda keyword, value, place, fields: self._words.title(value, place, fields),
            "default": lambda keyword, value, place, fields: self._words.default(value, place),
            **dict.fromkeys(self._rules.dropped, lambda keyword, value, place, fields: None),
        }

    def _other(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw:
        return self._as_sent(value)

    def _reference(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw:
        self._as_sent(Raw(b'{"$ref":%b}' % value))
        return value

    def _properties(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw:
        if not starts(value, b"{"):
            return self._as_sent(value)
        required = names_of(fields.get("required"))
        is_argument = self._is_input and required is not None
        shorter = {
            name: self.one(schema, place.property(name, is_required=name in (required or ()), is_argument=is_argument))
            for name, schema in decode_fields(value).items()
        }
        return Raw(encode_fields(shorter))

    def _by_name(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw | None:
        if not starts(value, b"{"):
            return self._as_sent(value)
        if keyword in DEFINITIONS and self._known.is_none:
            return None  # not at the top, and nothing refers to anything
        inner = place.inner()
        return Raw(encode_fields({name: self.one(schema, inner) for name, schema in decode_fields(value).items()}))

    def _items(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw:
        inner = place.inner(description_of(fields))
        if starts(value, b"["):
            return Raw(encode_fields([self.one(schema, inner) for schema in decode_array(value)]))
        return self.one(value, inner)

    def _arms(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw:
        if not starts(value, b"["):
            return self._as_sent(value)
        inner = place.inner(description_of(fields))
        return Raw(encode_fields([self.one(arm, inner) for arm in decode_array(value)]))

    def _inner(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw:
        return self.one(value, place.inner())

    def _additional(self, keyword: str, value: Raw, place: Place, fields: Fields) -> Raw | None:
        shorter = self.one(value, place.inner())
        return None if bytes(shorter) in (b"{}", b"true") and not self._counts_rest else shorter


def _aim(raw: Raw) -> Target | None:
    text = text_of(raw)
    return None if text is None else target(text)


def _says_nothing(keyword: str, value: Raw) -> bool:
    return keyword in NOTHING_SAID and len(value) < 20 and bytes(value) in NOTHING_SAID[keyword]


_ROUNDS = 16
"""Passes at most: what was moved into one place may then be moved on."""


def shorter_schema(raw: bytes, rules: SchemaRules, *, tool: str, about: str, is_input: bool) -> bytes:
    """The schema after `rules`; the same object where that is not shorter. Never raises.

    `tool`: the name of the tool; `about`: its description. `is_input`: the schema describes arguments.
    """
    try:
        for _ in range(_ROUNDS):
            shorter, is_final = _once(raw, rules, tool, about, is_input)
            if len(shorter) >= len(raw):
                break
            raw = shorter
            if is_final:
                break
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass  # of what is malformed in a part that matters, nothing is known
    return raw


def _once(raw: bytes, rules: SchemaRules, tool: str, about: str, is_input: bool) -> tuple[bytes, bool]:
    """One pass, and whether another one would find nothing."""
    fields = decode_fields(raw)
    known = references(raw, fields)
    words = Wording(rules, tool)
    walk = Walk(raw, known, words, rules, is_input=is_input)
    shorter = _walked(walk, known, fields, about)
    silenced = _beyond(words.texts, rules.all_texts)
    if silenced:
        walk = Walk(raw, known, Wording(rules, tool, silenced), rules, is_input=is_input)
        shorter = _walked(walk, known, fields, about)
    return encode_fields(shorter), walk.is_final


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


def _walked(walk: Walk, known: References, fields: Fields, about: str) -> Fields:
    """The schema at the top: `$schema` first, its definitions last."""
    first = {name: value for name, value in fields.items() if name == "$schema"}
    rest = {name: value for name, value in fields.items() if name not in (*DEFINITIONS, "$schema")}
    shorter = walk.schema(rest, Place(outer_text=about))
    shorter.pop("$schema", None)  # of a definition that stands at the top now
    return {**first, **shorter, **_definitions(walk, known)}


def _definitions(walk: Walk, known: References) -> Fields:
    """The definitions that are used, in the groups that they stood in."""
    if not known.definitions:
        return {}
    if known.are_kept:
        walk.needed.update(dict.fromkeys(known.definitions))
    done: dict[Target, Raw] = {}
    while waiting := [aim for aim in walk.needed if aim in known.definitions and aim not in done]:
        for aim in waiting:
            done[aim] = walk.one(known.definitions[aim], Place(aim[1], depth=1))
    groups: Fields = {}
    for group in DEFINITIONS:
        of_group = {aim[1]: done[aim] for aim in known.definitions if aim[0] == group and aim in done}
        if of_group:
            groups[group] = Raw(encode_fields(of_group))
    return groups
